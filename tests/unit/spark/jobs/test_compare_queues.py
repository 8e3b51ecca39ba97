"""Consume queues compared: the wrong replica is named, whichever is the longer."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.golden import unpack

from tandemq.spark.jobs.compare import Replica
from tandemq.spark.jobs.compare_queues import CompareQueues, compare_queues, queues_of
from tandemq.spark.source.store_files import StoreFiles, log_end


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """Two copies of one golden store."""
    unpack("5.3.3", tmp_path / "golden")
    for name in ("a", "b"):
        shutil.copytree(tmp_path / "golden" / "slave-clean", tmp_path / name)
    return [tmp_path / name for name in ("a", "b")]


def run(paths: list[Path]) -> list[dict[str, Any]]:
    stores = [StoreFiles(path, path.name) for path in paths]
    replicas = tuple(Replica(s.label, str(s.root), log_end(s.segments(), None)) for s in stores)
    queues = tuple(queues_of(replicas))
    piece = CompareQueues(queues, replicas, 0, max(replica.end for replica in replicas))
    return [row for batch in compare_queues(piece) for row in batch.to_pylist()]


def queue_file(path: Path, topic: str = "plain", queue_id: int = 0) -> Path:
    return path / "consumequeue" / topic / str(queue_id) / f"{0:020d}"


def test_equal_queues_have_no_difference(copies: list[Path]) -> None:
    assert run(copies) == []


@pytest.mark.parametrize("wrong", [0, 1])
def test_an_entry_that_points_elsewhere_is_found_and_blamed(copies: list[Path], wrong: int) -> None:
    """The log says which of the two is right."""
    file = queue_file(copies[wrong])
    data = bytearray(file.read_bytes())
    data[60:80] = data[80:100]
    file.write_bytes(data)
    (found,) = run(copies)
    assert (found["kind"], found["replica"], found["queue_offset"]) == ("queue", copies[wrong].name, 3)
    assert "entry 3 points to" in found["detail"]


@pytest.mark.parametrize("short", [0, 1])
def test_a_queue_that_ends_early_is_found(copies: list[Path], short: int) -> None:
    file = sorted(queue_file(copies[short]).parent.iterdir())[-1]
    data = bytearray(file.read_bytes())
    written = next((n for n in range(0, len(data), 20) if data[n : n + 20] == bytes(20)), len(data))
    data[written - 40 : written] = bytes(40)
    file.write_bytes(data)
    (found,) = run(copies)
    assert (found["replica"], found["kind"]) == (copies[short].name, "queue")
    assert found["detail"].startswith("2 entries from")


def test_a_queue_that_the_log_does_not_have_is_blamed_on_who_keeps_it(copies: list[Path]) -> None:
    """What is left of a topic that was deleted."""
    stale = queue_file(copies[1], "deleted")
    stale.parent.mkdir(parents=True)
    shutil.copy(queue_file(copies[1]), stale)
    (found,) = run(copies)
    assert (found["replica"], found["topic"]) == ("b", "deleted")
    assert "that the log does not have" in found["detail"]
