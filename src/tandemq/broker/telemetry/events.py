"""What happened to a broker's replication: found by comparing one snapshot with the next, and kept for those who ask.

Nothing in replication knows of it, so nothing there can forget to tell. What came and went between two looks is in the
counters of `HaStatus.events` alone.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tandemq.replication.status import HaStatus, ReplicaStatus

KEPT_MAX = 256
"""Events kept: some weeks of a quiet pair, hours of a bad day."""
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; `tone` is the word of the console's pages for how bad it is."""

    atMs: int
    what: str
    text: str
    tone: str = ""


class EventLog:
    """The last events of one broker."""

    def __init__(self) -> None:
        self._kept: deque[Event] = deque(maxlen=KEPT_MAX)
        self._last: HaStatus | None = None

    def look(self, status: HaStatus | None, now_ms: int) -> None:
        """Notes what is different from the last look."""
        if status is None:
            return
        self._kept.extendleft(Event(now_ms, *change) for change in changes(self._last, status))
        self._last = status

    def newest(self, count_max: int) -> list[dict[str, Any]]:
        return [asdict(event) for event in list(self._kept)[: max(0, count_max)]]


def changes(before: HaStatus | None, after: HaStatus) -> Iterator[tuple[str, str, str]]:
    """Yields (what, text, tone) of everything that differs."""
    if before is None:
        yield "Started", f"as {after.role}, {after.phase}, epoch {after.epoch}", ""
        return
    if before.role != after.role:
        what = "Promoted" if after.role == "master" else "Demoted"
        yield what, f"this broker is {after.role} now", "" if after.role == "master" else "catching-up"
    if before.epoch != after.epoch:
        yield "Epoch", f"epoch {after.epoch} begins, {before.epoch} was before", ""
    if before.phase != after.phase:
        waits = f", waits for {_hosts(after.waiting_for)}" if after.waiting_for else ""
        yield "Phase", f"{after.phase}, {before.phase} before{waits}", "" if after.phase != "read-only" else "read-only"
    if after.role != "master" and after.master != before.master and after.master:
        yield "Follows", f"{after.master}", ""
    if after.reason and after.reason != before.reason:
        yield "Trouble", f"{after.reason}: {after.error}", "danger"
    for cut in after.cuts[len(before.cuts) :]:
        yield "Cut", cut, "catching-up"
    if after.role == "master":
        yield from _replica_changes(before, after)


def _replica_changes(before: HaStatus, after: HaStatus) -> Iterator[tuple[str, str, str]]:
    known = {item.replica: item for item in before.replicas}
    for item in after.replicas:
        old = known.get(item.replica)
        if old is None:
            yield "Joined", f"{_host(item.replica)}, {item.state}", ""
        elif old.in_sync and not item.in_sync:
            yield "Fell behind", f"{_host(item.replica)} left the in-sync set{_why(item)}", "catching-up"
        elif item.in_sync and not old.in_sync:
            yield "In sync", _host(item.replica), "healthy"
        elif item.reason and item.reason != old.reason:
            yield "Trouble", f"{_host(item.replica)}{_why(item)}", "danger"
    for name in known.keys() - {item.replica for item in after.replicas}:
        yield "Left", _host(name), "catching-up"


def _why(item: ReplicaStatus) -> str:
    return f": {item.reason}, {item.error}" if item.reason else f": {item.state}"


def _host(replica: str) -> str:
    return replica.partition("#")[0]


def _hosts(replicas: tuple[str, ...]) -> str:
    return ", ".join(_host(replica) for replica in replicas)
