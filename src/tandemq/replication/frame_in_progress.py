"""The data frame that a slave is receiving.  Pure."""

from abc import ABC, abstractmethod

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Head, TransferReader
from tandemq.replication.decisions import Decision


class FrameInProgress(ABC):
    """The data frame that is arriving: in a buffer, or in the window at the end of the log where the shell receives
    it."""

    def __init__(self) -> None:
        self.frames: ha.SessionReader | TransferReader = TransferReader()
        self._head: Head | None = None
        self._pending = bytearray()
        self._direct = 0
        self.is_lone = False
        """A single send waited for what came last."""

    @property
    def is_catching_up(self) -> bool:
        """Whether some of what the master had when the session began is missing, as far as one can know."""
        return False

    @property
    def missing(self) -> int:
        """Log bytes of the current frame that have not arrived."""
        return self.frames.missing if self._head is not None else 0

    @property
    def window(self) -> int:
        """Log bytes that the shell may receive straight into the log, `taken` bytes behind its end."""
        return self.missing if not self._pending else 0

    @property
    def unsummed(self) -> int:
        """Of these, the bytes at the beginning that need not be looked at; the shell tells with `passed`."""
        return 0

    @property
    def taken(self) -> int:
        """Bytes of the current frame already received into the log's window."""
        return self._direct

    @property
    def has_pending(self) -> bool:
        """Whether a part of the current frame came in a buffer."""
        return bool(self._pending)

    def pending_to_window(self) -> bytes:
        """Returns the part of the current frame that came in a buffer, for the shell to put into the window."""
        data = bytes(self._pending)
        self._pending.clear()
        self._direct += len(data)
        return data

    @abstractmethod
    def took(self, data: memoryview, now: float) -> list[Decision]:
        """Takes bytes that were received into the window: `data` is that part of it."""

    def drop_partial(self) -> None:
        """Forgets the current frame: what has come of it does not count."""
        self._head = None
        self._pending.clear()
        self._direct = 0
