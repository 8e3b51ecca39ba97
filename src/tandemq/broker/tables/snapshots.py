"""A small table's file, written whole: delay offsets, producers of idempotent sends.

Text is made on the loop (a consistent picture), the disk is touched by another thread; changes during a write share the
next one. Tables that grow have a `table_file.py` instead.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tandemq.broker.tables.saving import SavingFile
from tandemq.broker.tables.table_file import read_table
from tandemq.broker.tables.table_writer import TableWriter, replace_file

_encode = msgspec.json.Encoder().encode


class SnapshotFile(SavingFile):
    """One table's file. `mark` asks for a save soon; `saved` waits until everything marked so far is on disk."""

    def __init__(self, path: Path, take: Callable[[], Mapping[str, Any]], writer: TableWriter | None = None) -> None:
        super().__init__(path)
        self._take = take
        self._writer = writer
        """The tables' own thread; without it any thread writes."""

    def load(self) -> dict[str, Any] | None:
        """Returns what the file holds, or its backup; None when there is neither. Raises ConfigError."""
        found = read_table(self.path)
        return None if found is None else found[0]

    async def _write(self) -> None:
        # Integer keys are quoted: upstream reads both.
        text = msgspec.json.format(_encode(self._take()), indent=1)
        if self._writer is None:
            await asyncio.to_thread(replace_file, self.path, [text])
        else:
            await self._writer.run(replace_file, self.path, [text])
