"""Replicas compared: each kind of deviation is found, named and blamed on the right one."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.golden import unpack

from tandemq.formats.record import encode_record, parse_record, walk
from tandemq.model.message import encode_properties
from tandemq.spark.jobs.compare import CompareRange, Replica, compare
from tandemq.spark.source.store_files import StoreFiles, log_end


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """Three copies of one golden store."""
    unpack("5.3.3", tmp_path / "golden")
    for name in ("a", "b", "c"):
        shutil.copytree(tmp_path / "golden" / "slave-clean" / "commitlog", tmp_path / name / "commitlog")
    return [tmp_path / name for name in ("a", "b", "c")]


def run(paths: list[Path], step: int = 1 << 30) -> list[dict[str, Any]]:
    stores = [StoreFiles(path, path.name) for path in paths]
    replicas = tuple(Replica(s.label, str(s.root), log_end(s.segments(), None)) for s in stores)
    stop = max(replica.end for replica in replicas)
    rows = [
        row
        for start in range(0, stop, step)
        for batch in compare(CompareRange(start, min(stop, start + step), replicas))
        for row in batch.to_pylist()
    ]
    return list({(row["physical_offset"], row["replica"]): row for row in rows}.values())


def records(path: Path, segment: int = 1) -> tuple[Path, list[tuple[int, int]]]:
    """A segment file and (position, size) of its records."""
    file = sorted((path / "commitlog").iterdir())[segment]
    data = file.read_bytes()
    return file, [(at, size) for at, size, magic in walk(data, 0, len(data)) if magic != 0xCBD43194]


def patch(file: Path, at: int, data: bytes) -> None:
    with open(file, "r+b") as target:
        target.seek(at)
        target.write(data)


@pytest.mark.parametrize("step", [1 << 30, 100_000, 4096])
def test_equal_replicas_have_no_differences(copies: list[Path], step: int) -> None:
    """However the log is cut into ranges."""
    assert run(copies, step) == []


@pytest.mark.parametrize("step", [1 << 30, 5000])
@pytest.mark.parametrize("place", ["body", "header"])
def test_one_flipped_byte_is_found_and_blamed(copies: list[Path], step: int, place: str) -> None:
    """The damaged replica is named with the message, also when only two are compared."""
    file, places = records(copies[1])
    at, _ = places[7]
    offset = at + (100 if place == "body" else 17)
    original = file.read_bytes()[offset]
    patch(file, offset, bytes([original ^ 1]))
    message = parse_record(sorted((copies[0] / "commitlog").iterdir())[1].read_bytes(), at)
    for paths in (copies, copies[:2], [copies[1], copies[0]]):
        (row,) = run(paths, step)
        assert row["physical_offset"] == message.physical_offset
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
            message.topic, message.queue_id, message.queue_offset,
        )  # fmt: skip
        if place == "body":
            assert (row["replica"], row["kind"]) == ("b", "damaged")
        else:
            assert row["kind"] == "differs"
    assert [row["replica"] for row in run(copies)] == ["b"]


def test_a_cut_tail_lists_what_is_missing(copies: list[Path]) -> None:
    """Every message behind the cut, on the replica that lost them."""
    file, places = records(copies[2], segment=-1)
    at, _ = places[-4]
    with open(file, "r+b") as target:
        target.seek(at)
        target.write(bytes(file.stat().st_size - at))
    rows = run(copies)
    assert {(row["kind"], row["replica"]) for row in rows} == {("missing", "c")}
    assert [row["physical_offset"] for row in rows] == [int(file.name) + at for at, _ in places[-4:]]
    assert {(r["kind"], r["replica"]) for r in run([copies[0], copies[2]])} == {("missing", "c")}


def test_a_swapped_message_is_found(copies: list[Path]) -> None:
    """Another whole message of the same size in its place: both are sound, the minority deviates."""
    file, places = records(copies[0])
    at, size = places[3]
    data = file.read_bytes()
    old = parse_record(data, at)
    new = encode_record(
        topic=old.topic, queue_id=old.queue_id, flag=old.flag, queue_offset=old.queue_offset,
        physical_offset=old.physical_offset, sys_flag=old.sys_flag, born_timestamp=old.born_timestamp,
        born_host=old.born_host, store_timestamp=old.store_timestamp, store_host=old.store_host,
        body=bytes(len(old.body)), properties=encode_properties(old.properties),
    )  # fmt: skip
    assert len(new) == size
    patch(file, at, new)
    (row,) = run(copies)
    assert (row["kind"], row["replica"], row["physical_offset"]) == ("differs", "a", old.physical_offset)
    assert "both are whole messages" in row["detail"]


def test_an_extra_message_is_found(copies: list[Path]) -> None:
    """One replica goes on where the others end."""
    file, places = records(copies[1], segment=-1)
    end = places[-1][0] + places[-1][1]
    data = file.read_bytes()
    last = parse_record(data, places[-1][0])
    extra = encode_record(
        topic="plain", queue_id=0, queue_offset=999, physical_offset=int(file.name) + end,
        born_timestamp=last.born_timestamp, born_host=last.born_host, store_timestamp=last.store_timestamp,
        store_host=last.store_host, body=b"nobody else has this",
    )  # fmt: skip
    patch(file, end, extra)
    (row,) = run(copies)
    assert (row["kind"], row["replica"], row["queue_offset"]) == ("extra", "b", 999)
    (row,) = run(copies[:2])
    assert (row["kind"], row["replica"], row["physical_offset"]) == ("missing", "a", int(file.name) + end)


def test_the_rest_of_a_segment_may_differ(copies: list[Path]) -> None:
    """Bytes behind a blank record belong to no message."""
    file, places = records(copies[0], segment=0)
    end = places[-1][0] + places[-1][1]
    patch(file, end + 8, b"junk")
    assert run(copies) == []
