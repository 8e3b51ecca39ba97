import os
from pathlib import Path

import pytest
from tests.unit.backup.stores import expire, log_bytes, opened, put, remember

from tandemq.backup import source
from tandemq.backup.source import SourceChanged, take_image
from tandemq.errors import StoreError
from tandemq.formats.record import check_record
from tandemq.replication.epochs import Epoch


def content(image: source.Image) -> bytes:
    return b"".join(piece for log in image.logs for piece in log.pieces())


def test_an_open_store_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store)
    image = take_image(tmp_path)
    assert image.position == store.appended
    assert content(image) == log_bytes(tmp_path)[: store.appended]
    image.close()
    store.close()


def test_half_a_record_does_not_count(tmp_path: Path) -> None:
    """A slave receives a record in pieces."""
    store = opened(tmp_path)
    put(store, 3, flush=False)
    end = store.appended
    put(store, 1, flush=False)
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(end + 150)
        file.write(bytes(store.appended - end - 150))
    image = take_image(tmp_path)
    assert image.position == end
    image.close()
    store.abandon()


def test_files_that_retention_deletes_meanwhile_are_still_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, 40)
    before = log_bytes(tmp_path)[: store.appended]
    image = take_image(tmp_path)
    expire(store)
    assert store.first_offset > 0
    assert content(image) == before
    image.close()
    store.close()


def test_a_file_that_disappears_between_two_looks_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    put(store, 40)
    real, calls = source._open, []

    def late(path: Path) -> int:
        if not calls:
            expire(store)
        calls.append(path)
        return real(path)

    monkeypatch.setattr(source, "_open", late)
    image = take_image(tmp_path)
    assert image.logs[0].base == store.first_offset > 0
    assert b'"offset":%d' % store.first_offset in image.files["queue-starts"]
    image.close()
    store.close()


def test_a_log_that_was_cut_meanwhile_is_no_image(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store)
    remember(tmp_path, Epoch(1, "a", 0))
    image = take_image(tmp_path)
    remember(tmp_path, Epoch(1, "a", 0), Epoch(2, "b", 500))
    with pytest.raises(SourceChanged):
        image.settle()
    remember(tmp_path, Epoch(1, "a", 0), Epoch(2, "b", image.position))
    image.settle()
    image.close()
    store.close()


def test_a_record_that_is_still_being_copied_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several records that are copied at once the last may be there first."""
    store = opened(tmp_path)
    put(store, 5, flush=False)
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(120)
        true = file.read(1)
        file.seek(120)
        file.write(b"?")
        file.flush()
        looks: list[int] = []

        def look(view: memoryview, at: int, limit: int) -> str | None:
            looks.append(at)
            if len(looks) == 3:
                file.seek(120)
                file.write(true)
                file.flush()
            return check_record(view, at, limit)

        monkeypatch.setattr(source, "LOOK_AGAIN_S", 0.0)
        monkeypatch.setattr(source, "check_record", look)
        image = take_image(tmp_path)
    assert len(looks) >= 3
    assert image.position == store.appended
    image.close()
    store.abandon()


def test_whole_records_behind_a_damaged_one_are_not_left_out_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "LOOK_AGAIN_S", 0.0)
    store = opened(tmp_path)
    put(store, 5, flush=False)
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(120)
        file.write(b"?")
    with pytest.raises(StoreError, match="no whole record at offset 0"):
        take_image(tmp_path)
    store.abandon()


def test_tables_come_with_the_journal_that_belongs_to_them(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, 1)
    config = tmp_path / "config"
    config.mkdir()
    for name in ("topics.json", "topics.json.bak", "topics.journal", "auth.json", "x.tmp"):
        (config / name).write_text(name)
    image = take_image(tmp_path)
    assert sorted(image.files) == ["config/auth.json", "config/topics.journal", "config/topics.json", "queue-starts"]
    image.close()
    store.close()


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, 40)
    store.flush_all()
    before = len(os.listdir("/proc/self/fd"))
    take_image(tmp_path).close()
    assert len(os.listdir("/proc/self/fd")) == before
    store.close()


@pytest.mark.parametrize("kind", ["nothing", "empty"])
def test_what_is_no_store_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    if kind == "empty":
        opened(tmp_path).close()
    with pytest.raises(StoreError, match=str(tmp_path)):
        take_image(tmp_path)
