"""Where a store keeps how far a RocketMQ broker had come with timer messages."""

import asyncio
from pathlib import Path

from tandemq.broker.tables.table_writer import TableWriter
from tandemq.broker.tables.timer_checkpoint import TimerCheckpointFile
from tandemq.formats.timer_checkpoint import TimerCheckpoint


def test_what_a_master_told_is_there_after_a_restart_until_the_log_is_cut(tmp_path: Path) -> None:
    told = TimerCheckpoint(read_ms=1000, seen_below=7)

    async def story() -> None:
        file = TimerCheckpointFile(tmp_path, TableWriter())
        file.load()
        assert file.known is None
        file.take(told)
        await file.saved()
        again = TimerCheckpointFile(tmp_path, TableWriter())
        again.load()
        assert again.known == told
        again.forget()
        again.load()
        assert again.known is None

    asyncio.run(story())


def test_a_rocketmq_broker_finds_files_of_its_size(tmp_path: Path) -> None:
    """Its timer log has the size that the files had before; its wheel goes, since it is made of that."""
    (tmp_path / "timerlog").mkdir()
    for name in ("00000000000000000000", "00000000000000001000"):
        (tmp_path / "timerlog" / name).write_bytes(bytes(1000))
    for name in ("timerwheel", "timerwheel.1024"):
        (tmp_path / name).write_bytes(b"old")
    told = TimerCheckpoint(read_ms=1000, seen_below=7)

    async def story() -> None:
        file = TimerCheckpointFile(tmp_path, TableWriter())
        await file.hand_back(b"unit" * 13, told)
        await file.saved()
        assert TimerCheckpoint.decode(file.path.read_bytes()) == told

    asyncio.run(story())
    (log,) = (tmp_path / "timerlog").iterdir()
    assert log.read_bytes() == (b"unit" * 13).ljust(1000, b"\0")
    assert not list(tmp_path.glob("timerwheel*"))


def test_a_timer_log_that_can_not_be_written_leaves_the_checkpoint_as_it_is(tmp_path: Path) -> None:
    """It must never claim what the timer log lacks."""
    (tmp_path / "timerlog").write_bytes(b"no directory")

    async def story() -> None:
        file = TimerCheckpointFile(tmp_path, TableWriter())
        await file.hand_back(b"", TimerCheckpoint(read_ms=1000, seen_below=7))
        assert file.known is None
        assert not file.path.exists()

    asyncio.run(story())
