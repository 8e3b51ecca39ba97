"""`confirmed`: how far readers of a replica were allowed to see its log, written with every step forward.

    0 boot id 16 | confirmed offset 8, in the machine's own byte order, stored in one piece

What a replica has shown it has to show again after a kill, also while nobody is there to confirm it. Its record is
saved when something changes in its group, queues and checkpoint every now and then; this mark is a page of memory that
belongs to a file, so it costs next to nothing, and outlives the process. It does not outlive the machine, nor may it:
a log that was cut may hold other bytes by then. So it counts during the boot in which it was written.
"""

from pathlib import Path

from tandemq.errors import StoreError
from tandemq.formats.layout import CONFIRMED
from tandemq.store.disk import Disk, Segment

SIZE = 4096
_BOOT_ID_SIZE = 16
_OFFSET_AT = _BOOT_ID_SIZE // 8


class ConfirmedMark:
    """Owner thread only."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._path = root / CONFIRMED
        self._segment: Segment | None = None
        self._words = memoryview(bytearray(SIZE)).cast("q")
        """The mapped page; memory that nobody reads again before `begin`, or where the disk has no room for it."""

    def read(self) -> int:
        """Returns what the last process of this boot was told; 0 if there was none."""
        if self._disk.file_size(self._path) != SIZE:
            return 0
        found = self._disk.read_at(self._path, 0, SIZE)
        return memoryview(found).cast("q")[_OFFSET_AT] if found[:_BOOT_ID_SIZE] == self._disk.boot_id() else 0

    def begin(self, offset: int) -> None:
        """Keeps what is set from here on."""
        try:
            if self._disk.file_size(self._path) != SIZE:
                self._disk.create_file(self._path, SIZE)
            segment = self._disk.open_segment(self._path, writable=True)
            segment.reserve(SIZE)
        except StoreError:
            return  # readers may have to wait for the master after a kill, which is no reason not to start
        self._segment, self._words = segment, segment.view.cast("q")
        self._words[_OFFSET_AT] = 0  # before the boot id vouches for it
        segment.view[:_BOOT_ID_SIZE] = self._disk.boot_id()
        self.set(offset)

    def set(self, offset: int) -> None:
        """Notes that everything below was confirmed."""
        self._words[_OFFSET_AT] = offset

    def lower(self, offset: int) -> None:
        """Takes the mark back, because the log is about to be cut."""
        if self._words[_OFFSET_AT] > offset:
            self._words[_OFFSET_AT] = offset

    def close(self) -> None:
        """Lets go of the file; what it says stays."""
        self._words = memoryview(bytearray(SIZE)).cast("q")
        if self._segment is not None:
            self._segment.close()
            self._segment = None
