"""The ledger of a chaos run: what was acknowledged, which calls began and ended, what was disturbed. Pure.

A stream is one group that must get every acknowledged message of its kind. The verdict has what no run may have (lost,
delivered although rolled back, out of order, overlapping, repeats without a reason) and the repeats by their reason.

A reason is something that was seen, not a guess from the time: a message may lie at as many places as there were
attempts to store it whose answer was not a clear no. What a member's client said about a message or its queue (it was
not taken back, the queue was won) explains the rest where nothing was disturbed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tandemq.client import SendStatus

WINDOW_S = 15.0
"""How long before a repeat its reason may lie: an offset may be a few seconds old when it is lost."""


@dataclass(slots=True)
class Call:
    """A message in the hands of a listener."""

    stream: str
    member: str
    id: str
    queue: str
    offset: int
    began: float
    ended: float = 0.0
    """0 while it runs."""
    done: bool = False
    """Whether the listener said that it is handled."""


@dataclass
class Verdict:
    """What became of everything."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    handled: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    repeats: dict[str, int] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        return self.lost + self.rolled_back + self.out_of_order + self.overlapping + self.unexplained

    def as_json(self) -> dict[str, Any]:
        counted = ("lost", "rolled_back", "out_of_order", "overlapping", "unexplained")
        return {
            "acknowledged": self.acknowledged,
            "handled": self.handled,
            "repeats": self.repeats,
            **{name: len(getattr(self, name)) for name in counted},
            "problems": self.problems[:50],
        }


class Ledger:
    """Kept while a run goes on. An id is KIND-anything; `streams` says which kind each stream must get."""

    def __init__(self, streams: dict[str, str], ordered: Iterable[str] = ()) -> None:
        self._streams = streams
        self._ordered = frozenset(ordered)
        self._handled: dict[str, set[str]] = {stream: set() for stream in streams}
        self._missing: dict[str, set[str]] = {stream: set() for stream in streams}
        """Acknowledged and not handled yet."""
        self._acknowledged: dict[str, float] = {}
        self._forbidden: set[str] = set()
        self._tries: dict[str, list[str]] = defaultdict(list)
        """What became of every attempt that may have stored a message."""
        self._said: dict[str, list[tuple[float, str]]] = defaultdict(list)
        """What clients logged about a message or a queue."""
        self._calls: list[Call] = []
        self._running: dict[tuple[str, int], Call] = {}
        self._disturbed: list[float] = []
        self._calm_since = float("inf")

    # what happens

    def acknowledged(self, message: str, now: float) -> None:
        self._acknowledged[message] = now
        for stream, kind in self._streams.items():
            if kind == _kind(message) and message not in self._handled[stream]:
                self._missing[stream].add(message)

    def tried(self, message: str, outcome: str) -> None:
        """An attempt to store a message was made and not clearly refused: it may lie at one more place."""
        self._tries[message].append(outcome)

    def said(self, about: str, text: str, now: float) -> None:
        """The client of a member logged something about a message or a queue."""
        self._said[about].append((now, text))

    def rolled_back(self, message: str) -> None:
        self._forbidden.add(message)

    def began(self, member: str, number: int, stream: str, message: str, queue: str, offset: int, now: float) -> None:
        call = Call(stream, member, message, queue, offset, now)
        self._calls.append(call)
        self._running[member, number] = call

    def ended(self, member: str, number: int, done: bool, now: float) -> None:
        call = self._running.pop((member, number))
        call.ended, call.done = now, done
        if done:
            self._handled[call.stream].add(call.id)
            self._missing[call.stream].discard(call.id)

    def died(self, member: str, now: float) -> None:
        """A member's process was killed: its calls ended with it."""
        for key in [key for key in self._running if key[0] == member]:
            self.ended(*key, False, now)

    def disturbed(self, now: float) -> None:
        """Something was killed, paused or promoted, or a member came or went: repeats are to be expected."""
        self._disturbed.append(now)

    def calm(self, now: float) -> None:
        """From here on nothing is disturbed: what is sent and handled after this is handled once."""
        self._calm_since = now

    # what it means

    def missing(self) -> list[str]:
        """Returns stream/id of everything acknowledged and not handled yet."""
        return [f"{stream}/{message}" for stream, missing in self._missing.items() for message in sorted(missing)]

    def verdict(self) -> Verdict:
        found = Verdict(lost=self.missing())
        found.acknowledged = dict(sorted(Counter(map(_kind, self._acknowledged)).items()))
        done = sorted((call for call in self._calls if call.done), key=lambda call: call.ended)
        found.handled = dict(sorted(Counter(call.stream for call in done).items()))
        found.rolled_back = sorted({f"{call.stream}/{call.id}" for call in done if call.id in self._forbidden})
        for stream in sorted(self._ordered):
            of_queue: dict[str, list[Call]] = defaultdict(list)
            for call in self._calls:
                if call.stream == stream:
                    of_queue[call.queue].append(call)
            for queue, calls in sorted(of_queue.items()):
                found.out_of_order += _out_of_order(queue, calls)
                found.overlapping += _overlapping(queue, calls)
        self._judge_repeats(done, found)
        return found

    def _judge_repeats(self, done: list[Call], found: Verdict) -> None:
        first: dict[tuple[str, str], Call] = {}
        failed = {(call.stream, call.id) for call in self._calls if not call.done}
        places: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
        for call in self._calls:
            if not _is_retry(call):
                places[call.stream, call.id].add((call.queue, call.offset))
        reasons: Counter[str] = Counter()
        for call in done:
            before = first.setdefault((call.stream, call.id), call)
            if before is call:
                continue
            reason = self._reason(before, call, failed, len(places[call.stream, call.id]))
            reasons[reason or "none"] += 1
            if reason is None:
                found.unexplained.append(self._story(before, call))
        found.repeats = dict(sorted(reasons.items()))

    def _reason(self, before: Call, after: Call, failed: set[tuple[str, str]], places: int) -> str | None:
        disturbed = self._was_disturbed(before, after)
        if (before.queue, before.offset) == (after.queue, after.offset):
            if not disturbed and not self._said_between(before, after, before.queue):
                return None
            return "the queue changed hands" if before.member != after.member else "the queue went back"
        if _is_retry(before) or _is_retry(after):
            if (after.stream, after.id) not in failed:
                return None
            if disturbed or self._said_between(before, after, before.queue, after.queue):
                return "failed, then came again by its queue and by the retry topic"
            return "its failure was told twice" if self._said_between(before, after, after.id) else None
        if places > len(self._tries[after.id]):
            return None
        late = any(outcome not in SendStatus.__members__ for outcome in self._tries[after.id])
        reason = "sent again after an attempt without a clear answer" if late else "sent again, a promise was missing"
        return reason if self._acknowledged.get(after.id, 0.0) <= self._calm_since else f"{reason}, in the calm"

    def _was_disturbed(self, before: Call, after: Call) -> bool:
        if self._acknowledged.get(after.id, 0.0) > self._calm_since:
            return False
        since = min(before.began, after.began) - WINDOW_S
        return any(since <= moment <= after.ended for moment in self._disturbed)

    def _said_between(self, before: Call, after: Call, *about: str) -> bool:
        return any(before.began <= when <= after.ended for key in about for when, _ in self._said[key])

    def _story(self, before: Call, after: Call) -> str:
        """Tells everything that is known about a repeat."""
        told = sorted(entry for key in {after.id, before.queue, after.queue} for entry in self._said[key])
        near = [f"{when:.3f} {text}" for when, text in told if before.began - WINDOW_S <= when <= after.ended]
        return (
            f"{after.stream}/{after.id} twice: {before.member} {before.queue}@{before.offset} at {before.ended:.3f}, "
            f"{after.member} {after.queue}@{after.offset} at {after.ended:.3f}; "
            f"attempts: {self._tries[after.id]}; said: {near[-5:]}"
        )


def _is_retry(call: Call) -> bool:
    return call.queue.startswith("%RETRY%")


def _kind(message: str) -> str:
    return message.partition("-")[0]


def _number(message: str) -> int:
    return int(message.rpartition("-")[2])


def _out_of_order(queue: str, calls: list[Call]) -> list[str]:
    """Messages whose first success came after that of a later one; the sender waited for each before the next."""
    problems = []
    seen: set[str] = set()
    highest = -1
    for call in sorted((call for call in calls if call.done), key=lambda call: call.ended):
        if call.id in seen:
            continue
        seen.add(call.id)
        if _number(call.id) < highest:
            problems.append(f"{call.stream}/{call.id} in {queue}@{call.offset} came after number {highest}")
        highest = max(highest, _number(call.id))
    return problems


def _overlapping(queue: str, calls: list[Call]) -> list[str]:
    problems = []
    latest: Call | None = None
    for call in sorted(calls, key=lambda call: call.began):
        if latest is not None and call.began < (latest.ended or float("inf")):
            problems.append(
                f"{queue}: {call.member} began {call.id} at {call.began:.3f} while {latest.member} had {latest.id} "
                f"from {latest.began:.3f} to {latest.ended:.3f}"
            )
        if latest is None or (call.ended or float("inf")) > (latest.ended or float("inf")):
            latest = call
    return problems
