"""When and where a send tries again: pure.

One deadline covers all attempts. An answer of the broker is worth another attempt only when another broker may answer
otherwise; a bad message or a missing permission on this topic is told to the caller at once. After a failure the next
attempt prefers a queue of another broker, and with `sendLatencyFaultEnable` slow brokers are avoided for a while.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandemq.codec.codes import ResponseCode
from tandemq.errors import ReplyError
from tandemq.model.topic import QueueRef

RETRIED_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which upstream's producer tries another broker (DefaultMQProducer, retryResponseCodes)."""

NOT_STORED_OK_CODES = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}
)
"""Stored with a promise missing: errors only for those who set retryAnotherBrokerWhenNotStoreOK."""

# A send that took at least the latency (left, ms) keeps its broker out of choice for the time beside it.
_LATENCY_BANDS = ((15000, 30000), (5000, 10000), (3000, 6000), (1800, 5000), (550, 2000), (100, 0), (50, 0), (0, 0))
ISOLATION_MS = 10_000
"""Latency assumed of a failed send, so that the bands give its broker the time of the slowest but one."""


def worth_retrying(error: Exception) -> bool:
    """Whether another attempt could end otherwise. Network errors: yes; refusals: by code."""
    if isinstance(error, ReplyError):
        return error.code in RETRIED_CODES or error.code in NOT_STORED_OK_CODES
    return True


def pause_ms(latency_ms: float) -> int:
    """How long a broker that took this long is avoided."""
    return next(pause for at_least, pause in _LATENCY_BANDS if latency_ms >= at_least)


class FaultTable:
    """Until when each broker is better avoided. Bounded by the number of brokers."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def record(self, broker_name: str, latency_ms: float, now: float, *, failed: bool = False) -> None:
        pause = pause_ms(ISOLATION_MS if failed else latency_ms)
        if pause:
            self._until[broker_name] = now + pause / 1000
        else:
            self._until.pop(broker_name, None)

    def available(self, broker_name: str, now: float) -> bool:
        return self._until.get(broker_name, 0.0) <= now


class QueueChooser:
    """Round-robin over the queues of a topic, starting anywhere."""

    __slots__ = ("_next",)

    def __init__(self, start: int) -> None:
        self._next = start

    def choose(
        self, queues: Sequence[QueueRef], avoid: str | None, available: Callable[[str], bool] | None = None
    ) -> QueueRef:
        """The next queue: not of the broker that just failed, then of an available one; any if none is left."""
        count = len(queues)
        self._next = start = (self._next + 1) % count
        if avoid is None and available is None:
            return queues[start]
        second: QueueRef | None = None
        for i in range(count):
            queue = queues[(start + i) % count]
            if queue.broker_name == avoid:
                continue
            if available is None or available(queue.broker_name):
                self._next = (start + i) % count
                return queue
            second = second or queue
        return second or queues[start]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a send, for the error that tells the whole story."""

    broker_name: str
    address: str
    queue_id: int
    elapsed_ms: int
    error: str

    def __str__(self) -> str:
        return f"{self.broker_name} ({self.address}) queue {self.queue_id}, {self.elapsed_ms} ms: {self.error}"
