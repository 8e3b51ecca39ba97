"""Whether the store accepts writes, and if not, why: the one guard in front of every append."""

import logging
from pathlib import Path

from tandemq.errors import DiskFull, LogPoisoned, StoreError
from tandemq.store.results import Health

log = logging.getLogger(__name__)


class WriteGate:
    """Closed by a failed sync (for good), a full disk (until there is room), a read-only opening, or `close`.

    Everything but `poison` is called by the store's owner; `poison` may be called by the flush thread.
    """

    __slots__ = ("_full", "_is_closed", "_poison", "_read_only", "_root", "is_shut")

    def __init__(self, root: Path, read_only: bool) -> None:
        self._root = root
        self._read_only = read_only
        self._is_closed = False
        self._full = ""
        self._poison: LogPoisoned | None = None
        self.is_shut = read_only
        """Whether any of the reasons below holds: the only thing a message's append has to look at."""

    @property
    def is_closed(self) -> bool:
        """Whether the store was closed."""
        return self._is_closed

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room when it was last asked."""
        return bool(self._full)

    def note_full(self, error: DiskFull) -> None:
        """Refuses writes until `set_full("")`, because the disk had no room for one."""
        self.set_full(str(error))

    def set_full(self, reason: str) -> None:
        """Refuses writes for this reason, or accepts them again if it is empty; logs the change, not its repetition."""
        if reason and not self._full:
            log.warning("takes no messages: %s", reason)
        elif self._full and not reason:
            log.warning("takes messages again: there is room on the disk of %s", self._root)
        self._full = reason
        self._update()

    def poison(self, error: LogPoisoned) -> None:
        """Refuses writes for good: what was written before may never reach the disk."""
        self._poison = error
        self._update()

    def close(self) -> None:
        """Refuses writes for good: the store is closed."""
        self._is_closed = True
        self._update()

    def _update(self) -> None:
        self.is_shut = bool(self._full or self._poison or self._read_only or self._is_closed)

    @property
    def health(self) -> Health:
        """Whether writes are accepted, and why not."""
        if self._poison is not None:
            return Health(False, str(self._poison))
        if self._read_only:
            return Health(False, "the store is open read-only")
        if self._is_closed:
            return Health(False, "the store is closed")
        return Health(not self._full, self._full, is_full=bool(self._full))

    def check_history(self) -> None:
        """Raises unless the log may be cut or its views rebuilt, which a full disk does not forbid."""
        if self._read_only or self._is_closed:
            self.refuse()

    def refuse(self) -> None:
        """Raises what a write gets while the gate is shut."""
        if self._poison is not None:
            raise self._poison
        reason = self.health.reason
        raise DiskFull(reason) if self._full else StoreError(f"{self._root}: no appends, {reason}")
