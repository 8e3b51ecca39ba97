"""Files and directories for their owner alone, whatever the umask says."""

import os
import stat
from pathlib import Path

from tandemq import private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_new_directory_on_the_way_is_private_and_old_ones_stay(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        tmp_path.chmod(0o755)
        private.make_directory(tmp_path / "a" / "b" / "c")
        private.make_directory(tmp_path / "a" / "b")
        with open(tmp_path / "a" / "file", "wb", opener=private.opener) as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("", "a", "a/b", "a/b/c", "a/file")] == [
        0o755,
        0o700,
        0o700,
        0o700,
        0o600,
    ]
