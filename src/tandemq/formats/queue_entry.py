"""The entry of a consume queue: where message i of (topic, queue id) lies in the log.

    at  field            size
     0  physicalOffset   8
     8  recordSize       4      FILLER_SIZE for an entry without a message
    12  tagsCode         8      hash of the tags; in the schedule topic the time (ms) when the message is due

All integers are big-endian. Entry i is at byte 20 × i of the queue's files taken together; each file has the same size
and is named after the byte at which it begins. A queue may begin above entry 0, when its history was deleted: the
entries before its first one in the first file are fillers, and so are entries whose messages the log does not have.
"""

from collections.abc import Callable
from struct import Struct

from tandemq.formats.layout import segment_name

ENTRY = Struct(">qiq")
ENTRY_SIZE = ENTRY.size
COLUMNS = (("offset", ">i8"), ("size", ">i4"), ("tags", ">i8"))
"""The same for numpy.dtype: importing numpy takes a tenth of a second, which not every user of this module needs."""
FILLER_SIZE = 0x7FFFFFFF
FILLER = ENTRY.pack(0, FILLER_SIZE, 0)


def search(
    low: int, high: int, skip_fillers: Callable[[int, int], int], is_wanted: Callable[[int], bool]
) -> tuple[int, int]:
    """Searches entries [low, high) by halving, where all that are wanted follow all that are not.

    Returns (the entry after the last that is not wanted, the first that is), `high` where there is none. Fillers lie
    anywhere and point nowhere, so a search that took one for an entry would go the wrong way. `skip_fillers(start,
    stop)` returns the first entry of [start, stop) that is none, or `stop`.
    """
    found = high
    while low < high:
        middle = (low + high) // 2
        real = skip_fillers(middle, high)
        if real == high:
            high = middle
        elif is_wanted(real):
            high, found = middle, real
        else:
            low = real + 1
    return low, found


def file_name(first_index: int) -> str:
    """Returns the name of the file whose first entry is `first_index`."""
    return segment_name(first_index * ENTRY_SIZE)


def first_index(name: str) -> int:
    """Returns the first entry of the file with this name."""
    return int(name) // ENTRY_SIZE
