"""Views rebuilt from the log are byte-identical to those that RocketMQ wrote."""

import filecmp
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.golden import unpack

from tandemq.errors import ConfigError
from tandemq.spark.jobs import reindex as job


class OneProcess:
    """Runs tasks without Spark: the job's planning and the workers' code are the same."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def collect(self) -> list[Any]:
        return self._rows


def run_here(spark: Any, items: Sequence[Any], work: Any, ddl: str) -> OneProcess:
    return OneProcess([row for item in items for batch in work(item) for row in batch.to_pylist()])


@pytest.fixture(params=["4.9.7", "5.3.3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(job, "run_tasks", run_here)
    return unpack(request.param, tmp_path)


SIZES = {"index_slots": 1000, "index_entries": 2000}


@pytest.mark.parametrize("range_bytes", [1 << 30, 50_000])
@pytest.mark.parametrize("name", ["slave-clean", "master-killed"])
def test_rebuilt_views_are_what_rocketmq_wrote(
    store: Path, name: str, range_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every queue file and every index file, whatever the ranges."""
    monkeypatch.setattr(job, "RANGE_BYTES", range_bytes)
    result = job.reindex(None, str(store / name), check=True, **SIZES)
    assert result.different == []
    assert result.queues > 5
    assert result.index_files == 2


def test_lost_and_damaged_views_are_restored(store: Path) -> None:
    """The files are the same again, under the same names; a check then finds nothing."""
    root = store / "slave-clean"
    before = store / "before"
    import shutil

    shutil.copytree(root, before)
    shutil.rmtree(root / "consumequeue" / "plain")
    victim = next((root / "index").iterdir())
    victim.write_bytes(bytes(victim.stat().st_size))
    found = job.reindex(None, str(root), check=True, **SIZES).different
    assert any("plain" in name for name in found)
    assert any("index" in name for name in found)
    job.reindex(None, str(root), **SIZES)
    for view in ("consumequeue", "index"):
        ours = sorted(str(f.relative_to(before)) for f in (before / view).rglob("*") if f.is_file())
        assert ours == sorted(str(f.relative_to(root)) for f in (root / view).rglob("*") if f.is_file())
        assert all(filecmp.cmp(before / name, root / name, shallow=False) for name in ours)
    assert not list(root.glob("reindex-*"))


def test_a_log_without_its_beginning_gives_queues_that_start_late(store: Path) -> None:
    """Entries of deleted history are fillers, as RocketMQ writes them."""
    from tandemq.spark.source.store_files import StoreFiles, log_end

    root = store / "slave-clean"
    sorted((root / "commitlog").iterdir())[0].unlink()
    job.reindex(None, str(root), **SIZES)
    files = StoreFiles(root, "x")
    segments = files.segments()
    queue = files.queue("plain", 0)
    first, next_ = queue.bounds(segments[0].start, log_end(segments, None))
    assert 0 < first < next_
    assert queue.entries(first, first + 1)["offset"][0] >= segments[0].start
    filler = queue.entries(first - 1, first)
    assert (filler["offset"][0], filler["size"][0]) == (0, 0x7FFFFFFF)


def test_wrong_sizes_and_a_running_broker_are_refused(store: Path) -> None:
    """A rebuild with other sizes would make the store unusable."""
    import multiprocessing

    with pytest.raises(ConfigError, match="give --index-slots and --index-entries"):
        job.reindex(None, str(store / "slave-clean"))
    held = multiprocessing.get_context("spawn").Event()
    done = multiprocessing.get_context("spawn").Event()
    process = multiprocessing.get_context("spawn").Process(
        target=hold_lock, args=(str(store / "slave-clean" / "lock"), held, done)
    )
    process.start()
    try:
        assert held.wait(30)
        with pytest.raises(ConfigError, match="in use by a running broker"):
            job.reindex(None, str(store / "slave-clean"), **SIZES)
    finally:
        done.set()
        process.join(30)


def hold_lock(path: str, held: Any, done: Any) -> None:
    """What a broker does with its store."""
    import fcntl
    import os

    handle = os.open(path, os.O_RDWR)
    fcntl.lockf(handle, fcntl.LOCK_EX)
    held.set()
    done.wait(60)
