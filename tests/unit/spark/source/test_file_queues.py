"""Queues of stored files: what they hold, times, marks; files that vanish are told, not skipped."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.golden import unpack

from tandemq.formats.layout import queue_directory
from tandemq.formats.queue_entry import ENTRY_SIZE, FILLER
from tandemq.model.topic import QueueRef
from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.options import FileOptions, parse
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.file_queues import FileAccess
from tandemq.spark.source.offsets import DataLost, Slice

ROWS = default_arrow_schema(["queue_offset", "store_timestamp", "physical_offset"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    unpack("5.3.3", tmp_path / "golden")
    shutil.copytree(tmp_path / "golden" / "slave-clean", tmp_path / "store-a")
    return tmp_path / "store-a"


def access(store: Path, **given: str) -> FileAccess:
    return FileAccess(parse(FileOptions, {"path": str(store), "order": "queue", "subscribe": "plain", **given}))


def rows(files: FileAccess, queue: QueueRef, start: int, stop: int, skip_lost: bool = False) -> list[dict[str, Any]]:
    found = files.read(Slice(queue, start, stop), Decoder(ROWS), 1000, skip_lost)
    return [row for batch in found for row in batch.to_pylist()]


def first_queue(files: FileAccess) -> tuple[QueueRef, int, int]:
    queue, bounds = min(files.ranges().items())
    return queue, *bounds


def test_every_message_of_a_queue_in_order(store: Path) -> None:
    files = access(store)
    queue, first, following = first_queue(files)
    assert [row["queue_offset"] for row in rows(files, queue, first, following)] == list(range(first, following))


def test_a_time_is_found_between_messages(store: Path) -> None:
    files = access(store)
    queue, first, following = first_queue(files)
    stamps = [int(row["store_timestamp"].timestamp() * 1000) for row in rows(files, queue, first, following)]
    for wanted in (stamps[0], stamps[-1], stamps[-1] + 1, 0):
        expected = next((n for n, stamp in enumerate(stamps) if stamp >= wanted), len(stamps))
        assert files.at_time({queue: wanted})[queue] == first + expected


def test_fillers_in_the_middle_are_stepped_over(store: Path) -> None:
    """They stand for messages that the log lacks; neither bounds nor times nor rows are led astray by them."""
    whole = access(store)
    queue, first, following = first_queue(whole)
    expected = rows(whole, queue, first, following)
    path = sorted(queue_directory(store, queue.topic, queue.queue_id).iterdir())[0]
    count = path.stat().st_size // ENTRY_SIZE
    lost = range(count // 4, count - 1)
    with path.open("r+b") as file:
        file.seek(lost.start * ENTRY_SIZE)
        file.write(FILLER * len(lost))
    files = access(store)
    assert files.ranges()[queue] == (first, following)
    left = [row for number, row in enumerate(expected) if number not in lost]
    assert rows(files, queue, first, following) == left
    for row in (left[0], left[1], left[-1]):
        wanted = int(row["store_timestamp"].timestamp() * 1000)
        found = files.at_time({queue: wanted})[queue]
        assert found == min(r["queue_offset"] for r in left if r["store_timestamp"] >= row["store_timestamp"])
    assert files.mean_size(queue, first, following) < 1 << 20


def test_a_mark_is_the_place_and_time_of_a_message(store: Path) -> None:
    files = access(store)
    queue, first, following = first_queue(files)
    row = rows(files, queue, first + 3, first + 4)[0]
    mark = files.marks_at({queue: first + 3})[queue]
    assert (mark.offset, mark.physical_offset) == (first + 3, row["physical_offset"])
    assert mark.store_ms == int(row["store_timestamp"].timestamp() * 1000)
    assert files.farthest([queue])[queue].next == following


@pytest.mark.parametrize("skip_lost", [True, False])
def test_segments_that_vanish_after_planning_are_told(
    store: Path, skip_lost: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """With numbers; failOnDataLoss=false reads the rest."""
    files = access(store)
    queue, first, following = first_queue(files)
    all_rows = rows(files, queue, first, following)
    gone = sorted((store / "commitlog").iterdir())[0]
    size = gone.stat().st_size
    gone.unlink()
    left = [row for row in all_rows if row["physical_offset"] >= size]
    lost = len(all_rows) - len(left)
    assert 0 < lost < len(all_rows)
    text = f"offsets {first} to {first + lost - 1} were deleted before they were read"
    if skip_lost:
        assert rows(files, queue, first, following, skip_lost=True) == left
        assert text in capsys.readouterr().err
    else:
        with pytest.raises(DataLost, match=text):
            rows(files, queue, first, following)


def test_partitions_of_several_stores_are_numbered_on_for_kafka(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "store-b")
    files = FileAccess(
        parse(
            FileOptions,
            {"path": f"{store},{tmp_path}/store-b", "order": "queue", "subscribe": "plain", "schema": "kafka"},
        )
    )
    numbers = sorted(files.numbering.number(queue) for queue in files.ranges())
    assert numbers == list(range(len(numbers)))
