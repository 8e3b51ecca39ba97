"""An AckQueue whose waiters are told at once, as a shell tells them when it carries out the decisions."""

from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue, Complete, Done, PutStatus


class TellingQueue:
    """The same inputs, without the list of decisions."""

    def __init__(self, queue: AckQueue | None = None) -> None:
        self.queue = AckQueue() if queue is None else queue

    def add(self, end: int, level: AckLevel, local_flush: bool, deadline: float, done: Done) -> None:
        known = self.queue.add(end, level, local_flush, deadline, done)
        if known is not None:
            done(*known)

    def acked(self, replica: str, received: int, durable: int) -> None:
        out: list[Complete] = []
        self.queue.acked(out, replica, received, durable)
        self._tell(out)

    def flushed(self, offset: int) -> None:
        out: list[Complete] = []
        self.queue.flushed(out, offset)
        self._tell(out)

    def lost(self, replica: str, reason: str) -> None:
        out: list[Complete] = []
        self.queue.lost(out, replica, reason)
        self._tell(out)

    def set_members(self, replicas: frozenset[str]) -> None:
        out: list[Complete] = []
        self.queue.set_members(out, replicas)
        self._tell(out)

    def set_size(self, size: int) -> None:
        out: list[Complete] = []
        self.queue.set_size(out, size)
        self._tell(out)

    def settle(self) -> None:
        out: list[Complete] = []
        self.queue.settle(out)
        self._tell(out)

    def expire(self, now: float) -> None:
        out: list[Complete] = []
        self.queue.expire(out, now)
        self._tell(out)

    def fail_all(self, status: PutStatus, reason: str) -> None:
        out: list[Complete] = []
        self.queue.fail_all(out, status, reason)
        self._tell(out)

    def _tell(self, out: list[Complete]) -> None:
        for complete in out:
            self.queue.tell(complete)
