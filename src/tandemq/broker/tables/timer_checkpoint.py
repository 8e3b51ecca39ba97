"""How far a RocketMQ 5 broker had come with timer messages: `config/timercheck` of its store, or what it tells a slave.

Brokers of ours write their progress into the log (`services/timers.py`) and need no file; one that follows a RocketMQ
master keeps what that tells here, where a RocketMQ broker would look for it.
"""

import logging
import os
from pathlib import Path

from tandemq.broker.tables.saving import SavingFile
from tandemq.broker.tables.table_writer import TableWriter, replace_file
from tandemq.formats.timer_checkpoint import FILE, TimerCheckpoint
from tandemq.formats.timer_wheel import FILE_SIZE, UNIT

log = logging.getLogger(__name__)


class TimerCheckpointFile(SavingFile):
    """The file and what it says; `known` is None where no RocketMQ 5 broker told."""

    def __init__(self, root: Path, writer: TableWriter) -> None:
        super().__init__(root / FILE)
        self._writer = writer
        self.known: TimerCheckpoint | None = None

    def load(self) -> None:
        try:
            self.known = TimerCheckpoint.decode(self.path.read_bytes())
        except FileNotFoundError:
            self.known = None
        except OSError as error:
            # It only spares looking at the log.
            log.warning("%s can't be read, the log tells what was delivered: %s", self.path, error)

    def take(self, told: TimerCheckpoint) -> None:
        """Keeps what a master told, which is true of the log that is here."""
        if told != self.known:
            self.known = told
            self.mark()

    def forget(self) -> None:
        """Forgets it: the log that it is about was cut."""
        if self.known is not None:
            self.known = None
            self.path.unlink(missing_ok=True)

    async def hand_back(self, units: bytes, told: TimerCheckpoint) -> None:
        """Leaves what a RocketMQ broker needs to go on here: its timer log, from which it makes its wheel anew."""
        await self.settled()
        try:
            await self._writer.run(self._replace_wheel, units)
            self.take(told)
        except OSError as error:
            log.warning("RocketMQ would deliver timed messages again, its files were not written: %s", error)

    def _replace_wheel(self, units: bytes) -> None:
        """Leaves no moment at which the checkpoint claims what the timer log lacks: the checkpoint comes last."""
        root = self.path.parent.parent
        directory = root / "timerlog"
        old = sorted(directory.iterdir()) if directory.is_dir() else []
        size = old[0].stat().st_size if old else FILE_SIZE
        if len(units) + UNIT.size > size:
            raise OSError(f"{len(units)} bytes of units don't fit a file of {size} bytes")
        for path in (*root.glob("timerwheel*"), *old):  # snapshots of the wheel have a number behind its name
            path.unlink()
        directory.mkdir(exist_ok=True)
        with open(directory / f"{0:020d}", "wb") as file:
            file.write(units)
            file.truncate(size)
            file.flush()
            os.fsync(file.fileno())

    async def _write(self) -> None:
        if self.known is not None:
            await self._writer.run(replace_file, self.path, [self.known.encode_file()])
