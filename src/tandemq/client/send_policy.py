"""When and where a send tries again. Pure.

One deadline covers all attempts. After a failure the next attempt prefers a queue of another broker; with
`sendLatencyFaultEnable` slow brokers are avoided for a while. What follows a failure depends on what it says:

| failure | next |
|---|---|
| no connection, no master, "I am a slave" | the broker moves: ask for the route, try until the deadline |
| connection lost, no answer in time | ask for the route, try as often as configured; not with a fixed queue |
| a refusal that another broker may not repeat | try elsewhere as often as configured; not with a fixed queue |
| any other refusal | tell the caller at once |

A message whose answer is missing may be stored. With a fixed queue, trying again could store it after later ones.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tandemq.codec.codes import ResponseCode
from tandemq.errors import ConnectFailed, NoRoute, ReplyError
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

OPEN_CODES = NOT_STORED_OK_CODES | {ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE}
"""Answers that a broker also gives about what it has stored: it was deposed meanwhile, or it handed the message on."""

# A send that took at least the latency (left, ms) keeps its broker out of choice for the time beside it.
_LATENCY_BANDS = ((15000, 30000), (5000, 10000), (3000, 6000), (1800, 5000), (550, 2000), (100, 0), (50, 0), (0, 0))
ISOLATION_MS = 10_000
"""Latency assumed for a failed send: its broker is avoided as long as one of the second slowest band."""


SAME_BROKER_PAUSE_S = 0.05
"""Pause before the broker that just failed is asked again, because there is no other: a moment for a busy one."""
SAME_BROKER_PAUSE_MAX_S = 0.4


class Step(NamedTuple):
    """What follows a failed attempt."""

    again: bool
    """Whether another attempt could end otherwise."""
    refresh: bool = False
    """Ask the name servers for the topic's route first."""
    counted: bool = True
    """The attempt counts against `retryTimesWhenSendFailed`; otherwise only the deadline ends the attempts."""


def after_failure(error: Exception, *, fixed: bool) -> Step:
    """Returns what follows an attempt that ended with `error`; `fixed` says that only one queue will do."""
    if isinstance(error, (ConnectFailed, NoRoute)):
        return Step(again=True, refresh=True, counted=False)
    if isinstance(error, ReplyError):
        if error.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            return Step(again=True, refresh=True, counted=False)
        retried = error.code in RETRIED_CODES or error.code in NOT_STORED_OK_CODES
        return Step(again=retried and not fixed, refresh=error.code == ResponseCode.TOPIC_NOT_EXIST)
    return Step(again=not fixed, refresh=True)


def may_be_stored(error: Exception) -> bool:
    """Returns whether an attempt that ended with `error` may have stored its message all the same."""
    if isinstance(error, ReplyError):
        return error.code in OPEN_CODES
    return not isinstance(error, (ConnectFailed, NoRoute))


def same_broker_pause(failures: int) -> float:
    """Returns the seconds to wait before the broker that failed so many times in a row is asked again."""
    return float(min(SAME_BROKER_PAUSE_MAX_S, SAME_BROKER_PAUSE_S * 2 ** min(failures - 1, 10)))


def pause_ms(latency_ms: float) -> int:
    """Returns for how long a broker that took this long is avoided."""
    return next(pause for at_least, pause in _LATENCY_BANDS if latency_ms >= at_least)


class FaultTable:
    """Until when each broker should be avoided. Bounded by the number of brokers."""

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
    """Goes round the queues of a topic, starting anywhere."""

    __slots__ = ("_next",)

    def __init__(self, start: int) -> None:
        self._next = start

    def choose(
        self, queues: Sequence[QueueRef], avoid: str | None, available: Callable[[str], bool] | None = None
    ) -> QueueRef:
        """Returns the next queue: not of the broker that just failed, preferably of an available one, else any."""
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
