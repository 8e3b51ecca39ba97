"""What goes through a broker: messages and bytes by topic and by group, with rates over a minute, an hour and a day.

The hot path only adds integers to a `Flow`; rates come from samples that `tick(now)` takes every TICK_SECONDS, and
totals are sums over flows, so nothing is counted twice. Pure: time is an argument.

    stats.put_flow(topic).add(count, size)            # a send
    stats.get_flow(topic, group).add(count, size)     # a pull that found something
    stats.pulls_found += 1; stats.pulls_missed += 1
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

TICK_SECONDS = 10.0
FLOWS_MAX = 20_000
"""Flows kept apart, some 5 KiB each when a day old; traffic of more topics and groups is counted under `OTHER`."""
OTHER = "(other)"
DAY_MS = 86_400_000

Sample = tuple[float, int, int]
"""monotonic seconds, messages, bytes"""

_Key = TypeVar("_Key", str, tuple[str, str])

_WINDOWS: tuple[tuple[int, int], ...] = ((1, 7), (60, 7), (360, 25))
"""minute, hour, day: a sample every so many ticks, so many kept (upstream's StatsItem)"""


class Flow:
    """Messages and bytes since the broker started; they only grow."""

    __slots__ = ("_samples", "bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self._samples: tuple[deque[Sample], ...] | None = None

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size

    def tick(self, now: float, before: float, number: int) -> None:
        """Takes the samples due at tick `number`; `before` is when the last tick was."""
        samples = self._samples
        if samples is None:
            # Whatever was counted before the first sample came after the last tick.
            samples = self._samples = tuple(deque([(before, 0, 0)], maxlen=kept) for _, kept in _WINDOWS)
        for (every, _), kept in zip(_WINDOWS, samples, strict=True):
            if number % every == 0:
                kept.append((now, self.messages, self.bytes))

    def window(self, index: int, now: float, before: float) -> Sample:
        """Returns seconds, messages and bytes of the minute (0), hour (1) or day (2) that ends now."""
        first = (before, 0, 0) if self._samples is None else self._samples[index][0]
        return max(now - first[0], 0.001), self.messages - first[1], self.bytes - first[2]

    @property
    def is_idle(self) -> bool:
        """Nothing came for a day."""
        return self._samples is not None and len(self._samples[2]) == 25 and self._samples[2][0][1] == self.messages


@dataclass(frozen=True, slots=True)
class Rate:
    """One window of one flow (BrokerStatsItem)."""

    sum: int
    tps: float


@dataclass(frozen=True, slots=True)
class Totals:
    """All flows of one direction since start, and per second over 10 s, 1 min and 10 min."""

    messages: int
    bytes: int
    tps: tuple[float, float, float]


class BrokerStats:
    """Every flow of a broker."""

    def __init__(self, now: float, wall_ms: int) -> None:
        self._put: dict[str, Flow] = {}
        self._get: dict[tuple[str, str], Flow] = {}
        self._send_back: dict[tuple[str, str], Flow] = {}
        self.pulls_found = 0
        self.pulls_missed = 0
        self.started_ms = wall_ms
        self._gone = [0, 0]
        """messages put and got of flows that were dropped for idleness: totals must not shrink"""
        self._ticks = 0
        self._ticked = now
        self._history: deque[tuple[float, int, int, int, int]] = deque([(now, 0, 0, 0, 0)], maxlen=61)
        self._day = wall_ms // DAY_MS
        self._mornings = [(0, 0), (0, 0)]
        """(put, got) at the start of yesterday and of today, UTC"""

    def put_flow(self, topic: str) -> Flow:
        return self._put.get(topic) or _new(self._put, topic, OTHER)

    def get_flow(self, topic: str, group: str) -> Flow:
        return self._get.get((topic, group)) or _new(self._get, (topic, group), (OTHER, OTHER))

    def send_back_flow(self, topic: str, group: str) -> Flow:
        return self._send_back.get((topic, group)) or _new(self._send_back, (topic, group), (OTHER, OTHER))

    def tick(self, now: float, wall_ms: int) -> bool:
        """Takes samples; call it every TICK_SECONDS. Returns whether idle flows were dropped, once a day."""
        for _ in self.sample(now):
            pass
        return self.finish_tick(now, wall_ms)

    def sample(self, now: float) -> Iterator[None]:
        """Begins a tick: takes a sample of each flow, one by one, because thousands take long; then `finish_tick`."""
        before, number = self._ticked, self._ticks + 1
        for flow in list(self._flows()):
            flow.tick(now, before, number)
            yield

    def finish_tick(self, now: float, wall_ms: int) -> bool:
        """Ends a tick. Returns what `tick` does."""
        self._ticks += 1
        self._ticked = now
        put, got = self._sum(self._put.values(), 0), self._sum(self._get.values(), 1)
        self._history.append((now, put, got, self.pulls_found, self.pulls_missed))
        if wall_ms // DAY_MS != self._day:
            self._day = wall_ms // DAY_MS
            self._mornings = [self._mornings[1], (put, got)]
            self._drop_idle()
            return True
        return False

    def put_totals(self, now: float) -> Totals:
        return self._totals(self._put.values(), now, 0, 1)

    def get_totals(self, now: float) -> Totals:
        return self._totals(self._get.values(), now, 1, 2)

    def pull_tps(self, now: float, *, found: bool) -> tuple[float, float, float]:
        return self._rates(now, 3 if found else 4, self.pulls_found if found else self.pulls_missed)

    def mornings(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Returns messages put and got until yesterday morning, until this morning, and until now."""
        now = (self._sum(self._put.values(), 0), self._sum(self._get.values(), 1))
        return self._mornings[0], self._mornings[1], now

    def topic_put_tps(self, topic: str, now: float) -> float:
        return self._tps(self._put.get(topic), now)

    def group_get_tps(self, topic: str, group: str, now: float) -> float:
        return self._tps(self._get.get((topic, group)), now)

    def item(self, name: str, key: str, now: float) -> tuple[Rate, Rate, Rate] | None:
        """Returns minute, hour and day of an upstream statistic, e.g. TOPIC_PUT_NUMS of a topic, or None."""
        in_bytes = name.endswith("_SIZE")
        flow = self._named(name, key)
        if flow is None:
            return None
        rates = []
        for index in range(len(_WINDOWS)):
            seconds, messages, size = flow.window(index, now, self._ticked)
            passed = size if in_bytes else messages
            rates.append(Rate(passed, passed / seconds))
        return rates[0], rates[1], rates[2]

    def topics(self) -> Iterator[tuple[str, Flow]]:
        yield from self._put.items()

    def groups(self) -> Iterator[tuple[tuple[str, str], Flow]]:
        yield from self._get.items()

    def send_backs(self) -> Iterator[tuple[tuple[str, str], Flow]]:
        yield from self._send_back.items()

    def forget_topic(self, topic: str) -> None:
        """Drops a deleted topic's flows; its messages stay in the totals."""
        if (flow := self._put.pop(topic, None)) is not None:
            self._gone[0] += flow.messages
        for key in [key for key in self._get if key[0] == topic]:
            self._gone[1] += self._get.pop(key).messages
        for key in [key for key in self._send_back if key[0] == topic]:
            del self._send_back[key]

    def _named(self, name: str, key: str) -> Flow | None:
        topic, _, group = key.rpartition("@")
        if name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
            return self._put.get(key)
        if name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE"):
            return self._get.get((topic, group))
        if name == "SNDBCK_PUT_NUMS":
            return self._send_back.get((topic, group))
        if name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            return _combined(self._put.values() if name == "BROKER_PUT_NUMS" else self._get.values())
        return None

    def _flows(self) -> Iterator[Flow]:
        yield from self._put.values()
        yield from self._get.values()
        yield from self._send_back.values()

    def _tps(self, flow: Flow | None, now: float) -> float:
        if flow is None:
            return 0.0
        seconds, messages, _ = flow.window(0, now, self._ticked)
        return messages / seconds

    def _sum(self, flows: Iterable[Flow], gone: int) -> int:
        return sum(flow.messages for flow in flows) + self._gone[gone]

    def _totals(self, flows: Iterable[Flow], now: float, gone: int, column: int) -> Totals:
        flows = list(flows)
        messages = self._sum(flows, gone)
        return Totals(messages, sum(flow.bytes for flow in flows), self._rates(now, column, messages))

    def _rates(self, now: float, column: int, value: int) -> tuple[float, float, float]:
        def rate(ticks: int) -> float:
            sample = self._history[max(0, len(self._history) - ticks)]
            return (value - sample[column]) / max(now - sample[0], 0.001)

        return rate(1), rate(6), rate(60)

    def _drop_idle(self) -> None:
        for topic in [topic for topic, flow in self._put.items() if flow.is_idle]:
            self._gone[0] += self._put.pop(topic).messages
        for key in [key for key, flow in self._get.items() if flow.is_idle]:
            self._gone[1] += self._get.pop(key).messages
        for key in [key for key, flow in self._send_back.items() if flow.is_idle]:
            del self._send_back[key]


def _new(flows: dict[_Key, Flow], key: _Key, other: _Key) -> Flow:
    if len(flows) >= FLOWS_MAX:
        key = other
        if key in flows:
            return flows[key]
    flow = flows[key] = Flow()
    return flow


def _combined(flows: Iterable[Flow]) -> Flow:
    """Returns the sum of flows as one flow: the oldest sample of each window is the sum of theirs."""
    total = Flow()
    oldest: list[list[float]] = [[float("inf"), 0, 0] for _ in _WINDOWS]
    for flow in flows:
        total.add(flow.messages, flow.bytes)
        for index, first in enumerate(oldest):
            if flow._samples is not None:
                when, messages, size = flow._samples[index][0]
                first[0] = min(first[0], when)
                first[1] += messages
                first[2] += size
    if oldest[0][0] != float("inf"):
        total._samples = tuple(deque([(first[0], int(first[1]), int(first[2]))]) for first in oldest)
    return total
