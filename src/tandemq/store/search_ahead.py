"""Reads what a search by time will read, in another thread, so that the search itself does not wait for the disk.

Nobody knows before where a search in old messages leads, so no part of the log can be brought into memory for it. This
goes the same way with descriptors of its own, and knows nothing of the store but names: retention may take the files
meanwhile, then it ends early and the search pays for the rest.
"""

import contextlib
import struct
from pathlib import Path

from tandemq.errors import StoreError
from tandemq.formats.layout import segment_name
from tandemq.formats.queue_entry import ENTRY, ENTRY_SIZE, FILLER_SIZE, file_name, search
from tandemq.formats.record import FIXED_SIZE_V4, store_timestamp
from tandemq.store.disk import Disk


class SearchAhead:
    """Call it once, in any thread."""

    def __init__(
        self,
        disk: Disk,
        queue: Path,
        file_entries: int,
        log: Path,
        segment_size: int,
        first: int,
        stop: int,
        timestamp_ms: int,
    ) -> None:
        """Searches entries [first, stop), which a queue has in files, for the first stored at or after a time."""
        self._disk = disk
        self._queue = queue
        self._file_entries = file_entries
        self._log = log
        self._segment_size = segment_size
        self._first = first
        self._stop = stop
        self._timestamp_ms = timestamp_ms

    def __call__(self) -> int | None:
        """Returns where the search led, None if it met a file that is gone."""
        with contextlib.suppress(OSError, StoreError, struct.error):
            return search(self._first, self._stop, lambda start, stop: start, self._is_late)[1]
        return None

    def _is_late(self, index: int) -> bool:
        file_index = index - index % self._file_entries
        _, entry = self._disk.peek(self._queue / file_name(file_index), ENTRY_SIZE, (index - file_index) * ENTRY_SIZE)
        physical_offset, size, _ = ENTRY.unpack(entry)
        if size == FILLER_SIZE:
            return False
        base = physical_offset - physical_offset % self._segment_size
        _, head = self._disk.peek(self._log / segment_name(base), FIXED_SIZE_V4, physical_offset - base)
        return store_timestamp(head, 0) >= self._timestamp_ms
