"""When a slave's readers are shown what is confirmed: at once, but not while history pours in.  Pure."""

from typing import Final

BULK_SIZE_MIN: Final = 1 << 20
"""A frame of more than this is history on its way to a slave that catches up."""
BULK_PAUSE: Final = 0.25
"""While the history that the master had at the beginning pours in, receiving goes before dispatch, which costs as much:
a slave that has the bytes protects them, one that shows them can wait. But not for more than will still be in the page
cache when it is dispatched, and not on a slow link: without bulk for such a pause, which is longer than a disk holds up
a write, there is time for both."""


class Showing:
    """The confirmed offset that readers are to see, and whether it is put off."""

    def __init__(self, backlog_max: int) -> None:
        """`backlog_max`: as many bytes as will still be in the page cache when they are dispatched."""
        self._backlog_max = backlog_max
        self.confirmed = 0
        self._poured_at = float("-inf")
        self.is_owed = False
        """Something was confirmed that nobody decided about yet."""

    def begin(self, log_end: int) -> None:
        """Begins a session with a log that ends there."""
        self.confirmed, self._poured_at = log_end, float("-inf")

    def committed(self, size: int, now: float) -> None:
        """Notes that so many bytes were received into the log at once."""
        if size > BULK_SIZE_MIN:
            self._poured_at = now

    def confirm(self, offset: int) -> bool:
        """Takes what is confirmed. Returns whether that is less than before: the log was cut, not to be put off."""
        cut, self.confirmed = offset < self.confirmed, offset
        self.is_owed = True
        return cut

    def may_show(self, dispatched: int, now: float) -> bool:
        """Returns whether readers of a slave that catches up are shown it now; else it is asked again after a pause."""
        return now - self._poured_at >= BULK_PAUSE or self.confirmed - dispatched >= self._backlog_max
