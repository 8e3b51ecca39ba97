"""By which way the next bytes of a master are received: through a buffer, into the log's file, or spliced there.  Pure.

Frames that fit are read together into a buffer; the rest of a larger one goes to the log piece by piece, as it comes.
What no checksum covers is not received at all but spliced from the socket to the file, which halves the work again.
"""

from enum import Enum
from typing import Final, NamedTuple

from tandemq.replication.frame_in_progress import FrameInProgress

DIRECT_SIZE_MIN: Final = 16 << 10
"""Below this the copy is cheaper than another system call."""
RECEIVE_CHUNK: Final = 512 << 10
"""Bytes received and written to the log per call: less than a millisecond of the loop's time.

Received into a buffer that stays in the cache and written by pwrite: receiving into the mapped segment itself saves the
copy but pays a page fault for every 4 KiB, which on ext4 makes it five times slower (store/disk.py has the figures).
"""
QUICK: Final = 0.05
"""Seconds. While bulk comes faster than this, it is waited for until it is worth a wake-up; on a slow link every byte
is a sign of life."""


class Way(Enum):
    BUFFER = "buffer"
    WINDOW = "window"
    """Into the window at the end of the log, looked at on the way."""
    SPLICE = "splice"
    """Into the window, inside the kernel."""


class Read(NamedTuple):
    """The next call: how, and at most how many bytes."""

    way: Way
    size_max: int = 0


BUFFERED: Final = Read(Way.BUFFER)


def next_read(frame: FrameInProgress, splice_max: int) -> Read:
    """Returns how to receive what comes next; `splice_max`: what the connection splices at once, 0 if it can't."""
    window = frame.window
    if window < DIRECT_SIZE_MIN and not (window and frame.taken):
        return BUFFERED
    unseen = min(frame.unsummed, splice_max)
    if unseen >= DIRECT_SIZE_MIN:
        return Read(Way.SPLICE, unseen)
    return Read(Way.WINDOW, min(window, RECEIVE_CHUNK))


def spills(frame: FrameInProgress) -> bool:
    """Returns whether a large frame began in the buffer: that part belongs into the window before the rest."""
    return frame.missing >= DIRECT_SIZE_MIN and frame.has_pending


def worth_waking(left: int, since_last: float) -> int:
    """Returns how many bytes to be woken for: a good part of the frame while it comes quickly, else 0 for any."""
    return left if since_last < QUICK and left >= DIRECT_SIZE_MIN else 0
