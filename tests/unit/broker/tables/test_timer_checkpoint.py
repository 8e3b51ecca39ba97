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
