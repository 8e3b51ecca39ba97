import sys
from pathlib import Path

import pytest

from tandemq.backup.target import DirectoryTarget, open_target
from tandemq.errors import ConfigError, StoreError


def test_objects_of_a_directory(tmp_path: Path) -> None:
    target = open_target(str(tmp_path / "new" / "backup"))
    assert target.read("a/b") is None
    assert target.size("a/b") is None
    target.write("a/b", iter([b"one", b"two"]))
    pieces = target.read("a/b")
    assert pieces is not None
    assert b"".join(pieces) == b"onetwo"
    assert target.size("a/b") == 6
    target.remove("a/b")
    target.remove("a/b")
    assert sorted(path.name for path in (tmp_path / "new" / "backup").iterdir()) == [".lock"]
    target.close()


def test_an_object_that_could_not_be_written_does_not_replace_the_one_before(tmp_path: Path) -> None:
    target = DirectoryTarget(tmp_path)
    target.write("a", iter([b"old"]))

    def failing() -> object:
        yield b"ne"
        raise OSError(5, "no luck")

    with pytest.raises(StoreError, match="no luck"):
        target.write("a", failing())  # type: ignore[arg-type]
    assert (tmp_path / "a").read_bytes() == b"old"
    target.close()


def test_one_backup_at_a_time_into_a_directory(tmp_path: Path) -> None:
    one, other = DirectoryTarget(tmp_path), DirectoryTarget(tmp_path)
    one.write("a", iter([b""]))
    with pytest.raises(StoreError, match="another backup"):
        other.write("b", iter([b""]))
    one.close()
    other.close()


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(ConfigError, match="ftp://"):
        open_target("ftp://host/x")


def test_s3_without_pyarrow_names_the_extra_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"tandemq\[spark\]") as refused:
        open_target("s3://me:secret@bucket/x?region=y")
    assert "secret" not in str(refused.value)
    assert "s3://bucket/x" in str(refused.value)
