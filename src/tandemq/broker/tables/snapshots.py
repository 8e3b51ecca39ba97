"""A small table's file, written whole: delay offsets, producers of idempotent sends.

Text is made on the loop (a consistent picture), unless the table gives a picture of its own that may be read beside it;
the disk is touched by another thread; changes during a write share the next one. Tables that grow have a
`table_file.py` instead.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tandemq.broker.tables.saving import SavingFile
from tandemq.broker.tables.table_file import read_table
from tandemq.broker.tables.table_writer import TableWriter, replace_file
from tandemq.errors import CodecError, ConfigError

_encode = msgspec.json.Encoder().encode
Table = Mapping[str, Any]
LaterTable = Callable[[], Table]


class SnapshotFile(SavingFile):
    """One table's file. `mark` asks for a save soon; `saved` waits until everything marked so far is on disk."""

    def __init__(self, path: Path, take: Callable[[], Table | LaterTable], writer: TableWriter | None = None) -> None:
        """`take` gives the table, or what gives it in another thread as it was at this moment."""
        super().__init__(path)
        self._take = take
        self._writer = writer
        """The tables' own thread; without it any thread writes."""

    def load(self) -> dict[str, Any] | None:
        """Returns what the file holds, or its backup; None when there is neither. Raises ConfigError."""
        found = read_table(self.path)
        return None if found is None else found[0]

    def load_into(self, take: Callable[[dict[str, Any]], None]) -> None:
        """Gives what the file holds to whoever knows what it means. Raises ConfigError if it means nothing."""
        if (snapshot := self.load()) is None:
            return
        try:
            take(snapshot)
        except (CodecError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"{self.path}: {error}; correct the file or restore a good copy") from None

    async def _write(self) -> None:
        taken = self._take()
        text = None if callable(taken) else _text(taken)

        def write() -> None:
            replace_file(self.path, [_text(taken()) if callable(taken) else text or b""])

        if self._writer is None:
            await asyncio.to_thread(write)
        else:
            await self._writer.run(write)


def _text(table: Table) -> bytes:
    # Integer keys are quoted: upstream reads both.
    return msgspec.json.format(_encode(table), indent=1)
