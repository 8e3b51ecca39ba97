"""Why this broker takes no messages: the one owner of that, for senders, services, the dispatcher and the status.

    refuse    a slave, a master that must ask first, that takes over tables or steps down, a flush that failed
    allow     replication has settled what the log is
    end       the broker stops: nothing opens the gate again

Beside the gate stands the fence of a broker with a coordinator: until when it may write, whatever else it believes.
"""

import logging

from tandemq.codec.codes import ResponseCode
from tandemq.errors import ReplyError
from tandemq.replication.fence import Fence

log = logging.getLogger(__name__)

LEASE_OVER = (
    "the lease of this master is over and could not be renewed: another may be elected; see `tandemq ha status`"
)


class WriteRefused(ReplyError):
    """This broker takes no writes now; the remark says why."""

    def __init__(self, remark: str, code: int = ResponseCode.SERVICE_NOT_AVAILABLE) -> None:
        super().__init__(code, remark)


class WriteGate:
    """Open from the beginning; whoever builds a broker closes it before anybody can send."""

    __slots__ = ("_has_ended", "fence", "refusal")

    def __init__(self) -> None:
        self.refusal: WriteRefused | None = None
        """Set while nothing may be written; changed only here, read for every send."""
        self.fence: Fence | None = None
        self._has_ended = False

    def refuse(self, why: str) -> None:
        """Refuses writes from now on; the newest reason is told, unless the gate has ended."""
        if not self._has_ended:
            if self.refusal is None or self.refusal.remark != why:
                log.debug("writes are refused: %s", why)
            self.refusal = WriteRefused(why)

    def allow(self) -> None:
        """Allows writes, unless the gate has ended."""
        if not self._has_ended:
            log.debug("writes are taken")
            self.refusal = None

    def end(self, why: str) -> None:
        """Ends writing for good in this process."""
        self.refuse(why)
        self._has_ended = True

    def check(self) -> None:
        """Raises WriteRefused while nothing may be written."""
        if self.refusal is not None:
            raise self.refusal
        if self.fence is not None and self.fence.is_closed:
            raise WriteRefused(LEASE_OVER)
