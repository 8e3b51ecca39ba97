"""Keeps one table on disk: read at the start, saved whenever it changed, at the cost of what changed.

A small table is written whole, as RocketMQ writes it. Of a table larger than WHOLE_SIZE_MAX only the changes are
written, into its journal (`formats/table_files.py`); the whole file follows once the journal has a quarter of its size,
and when the broker stops, so that RocketMQ can take over the directory.

Text is made on the loop in slices (the table may change in between: those changes come after it in the journal); the
disk is touched by the tables' one writing thread. Changes during a save share the next one.
"""

import binascii
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from tandemq.broker.tables.changes import Changes
from tandemq.broker.tables.saving import SavingFile
from tandemq.broker.tables.table_writer import TableWriter, private, replace_file, sync_directory
from tandemq.clock import Clock
from tandemq.codec.table_text import table_of
from tandemq.errors import CodecError, ConfigError
from tandemq.formats.layout import journal_path
from tandemq.formats.table_files import CorruptTable, change_line, file_pieces, first_line
from tandemq.remoting.slices import Slices

log = logging.getLogger(__name__)

WHOLE_SIZE_MAX = 128 * 1024
"""Bytes of a table's file that are written anew for every change: about a millisecond of processor time."""
JOURNAL_SHARE = 4
"""The journal's limit is this part of the file's size."""
CHANGES_PER_LINE = 256


class SavedTable(Protocol):
    """What a table offers to its file. Keys are whatever it notes in `changes`."""

    changes: Changes[Any]

    def members(self) -> Mapping[str, Any]:
        """Returns the small members of the file: the version."""
        ...

    def maps(self) -> Iterable[tuple[str, Iterable[tuple[str, Any]]]]:
        """Returns the maps of the file by name, each with its entries; iterating survives changes of the table."""
        ...

    def change(self, keys: list[Any]) -> dict[str, Any]:
        """Returns the part of the file that holds these keys, None for those that are gone."""
        ...

    def load(self, snapshot: Mapping[str, Any]) -> None:
        """Takes over what the file says."""
        ...


class TableFile(SavingFile):
    """One table's file. `mark` asks for a save soon; `saved` waits until every change marked so far is on disk."""

    def __init__(self, path: Path, table: SavedTable, writer: TableWriter, clock: Clock, *, depth: int = 2) -> None:
        super().__init__(path)
        self._journal_path = journal_path(path)
        self._table = table
        self._writer = writer
        self._clock = clock
        self._depth = depth
        """Levels of maps that a change merges into."""
        self._size = 0
        """Bytes of the file."""
        self._journal_size: int | None = None
        """Bytes of a journal that belongs to the file; None when there is none."""
        self._saved = 0
        """Changes up to this number are on disk."""

    def load(self) -> bool:
        """Reads file and journal into the table; returns whether there was anything. Raises ConfigError."""
        found = read_table(self.path)
        if found is None:
            return False
        snapshot, self._size, self._journal_size = found
        try:
            self._table.load(snapshot)
        except (CodecError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"{self.path}: {error}; correct the file or restore {self.path.name}.bak") from None
        self._saved = self._table.changes.count
        return True

    async def close(self) -> None:
        """Writes the file whole, so that it needs no journal."""
        await self.settled()
        try:
            await self._write_whole()
        except OSError as error:
            log.error("%s was not saved: %s", self.path, error)

    async def _write(self) -> None:
        try:
            if not await self._write_changes():
                await self._write_whole()
        except OSError:
            self._journal_size = None  # it may be torn: the next save writes everything
            raise

    async def _write_changes(self) -> bool:
        """Appends what changed to the journal; returns False when the whole file must be written instead."""
        if self._journal_size is None or self._journal_size > max(self._size, WHOLE_SIZE_MAX) // JOURNAL_SHARE:
            return False
        changes = self._table.changes
        count, keys = changes.count, changes.since(self._saved)
        if keys is None:
            return False
        slices = Slices(self._clock)
        lines = []
        for start in range(0, len(keys), CHANGES_PER_LINE):
            lines.append(change_line(self._table.change(keys[start : start + CHANGES_PER_LINE])))
            await slices.breathe()
        data = b"".join(lines)
        if data:
            await self._writer.run(_append, self._journal_path, data, self._journal_size)
        self._journal_size += len(data)
        self._saved = count
        return True

    async def _write_whole(self) -> None:
        count, crc, size = self._table.changes.count, 0, 0
        slices = Slices(self._clock)
        pieces = []
        for piece in self._pieces():
            crc = binascii.crc32(piece, crc)
            size += len(piece)
            pieces.append(piece)
            await slices.breathe()
        await self._writer.run(replace_file, self.path, pieces)
        self._journal_size = None
        self._size, self._saved = size, count
        if size > WHOLE_SIZE_MAX:
            head = first_line(crc, self._depth)
            await self._writer.run(_begin, self._journal_path, head)
            self._journal_size = len(head)
        else:
            await self._writer.run(self._journal_path.unlink, missing_ok=True)

    def _pieces(self) -> Iterator[bytes]:
        return file_pieces(self._table.members(), self._table.maps())


def read_table(path: Path) -> tuple[dict[str, Any], int, int | None] | None:
    """Reads a table's file, or its backup, with the journal that belongs to it.

    Returns (the table, size of its file, size of its journal), None when there is no file. Raises ConfigError for files
    that can't be read: to start with an empty table would be worse than not to start.
    """
    journal = _content(journal_path(path))
    unreadable = []
    for candidate in (path, path.with_name(path.name + ".bak")):
        text = _content(candidate)
        if not text.strip():
            continue
        try:
            table, replayed = table_of(text, journal)
        except CorruptTable as error:
            where = journal_path(path)
            raise ConfigError(f"{where}: {error}; remove the file to go on without the changes in it") from None
        except CodecError as error:
            log.warning("%s can't be read: %s", candidate, error)
            unreadable.append(candidate.name)
            continue
        if journal and not replayed.size:
            log.warning("%s belongs to another version of its table and is ignored", journal_path(path))
        return table, len(text), replayed.size or None
    if unreadable or path.exists():
        names = " and ".join(unreadable) or path.name
        raise ConfigError(f"{path.parent}: {names} can't be read as a JSON object; restore a good copy or remove them")
    return None


def _content(path: Path) -> bytes:
    """Returns what a file holds, nothing when there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _begin(path: Path, head: bytes) -> None:
    """Puts a new journal in the place of an older one."""
    new = path.with_name(path.name + ".tmp")
    new.unlink(missing_ok=True)
    with open(new, "wb", opener=private) as file:
        file.write(head)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_directory(path.parent)


def _append(path: Path, data: bytes, size: int) -> None:
    """Appends to the journal durably, after the `size` bytes that are whole."""
    with open(path, "r+b") as file:
        file.truncate(size)
        file.seek(size)
        file.write(data)
        file.flush()
        os.fdatasync(file.fileno())
