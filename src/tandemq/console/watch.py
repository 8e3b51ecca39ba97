"""Looks at the whole cluster once a second and remembers a little: who was there, rates, lags, what changed.

One watch serves every open page of an account, so that more viewers cost the brokers nothing. While nobody looks it
asks only now and then, to keep the charts going. All it knows began with this process and is bounded.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tandemq.client.admin import Admin
from tandemq.clock import Clock
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.console.axis import Window
from tandemq.console.picture import Group, Report, draw
from tandemq.errors import ReplyError, TandemError
from tandemq.model.route import BrokerGroup

log = logging.getLogger("tandemq.console")

LOOK_SECONDS = 1.0
IDLE_SECONDS = 5.0
"""Between looks while no page is open."""
ANSWER_MS = 1_000
"""A node that says nothing for this long does not answer, and the page says so within two seconds."""
HISTORY = 900
"""Points of a chart: 15 minutes of seconds."""
NODES_MAX = 512
SERIES_MAX = 1024
CHANGES_MAX = 200
FORGET_MS = 3_600_000
"""A node that no name server lists and that nobody heard for an hour is forgotten."""
EVENTS_EVERY = 5
"""Looks between two questions for events."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NameServerView:
    address: str
    answers: bool
    error: str = ""
    brokers: int = 0
    since_ms: int = 0
    """When it last answered."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something this console saw happen, or that a broker told of."""

    at_ms: int
    group: str
    what: str
    text: str
    tone: str = ""
    told_by: str = "console"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment."""

    at_ms: int
    groups: tuple[Group, ...] = ()
    reports: tuple[Report, ...] = ()
    name_servers: tuple[NameServerView, ...] = ()
    problem: str = ""
    """Why nothing can be said at all."""
    refusal: str = ""
    """What the cluster answered to somebody without an account, or whose account is not told."""
    number: int = 0
    clusters: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        return bool(self.refusal)

    @property
    def in_tps(self) -> float:
        return sum(m.in_tps or 0 for group in self.groups for m in group.members)

    @property
    def out_tps(self) -> float:
        return sum(m.out_tps or 0 for group in self.groups for m in group.members)


@dataclass(slots=True)
class Series:
    """The last minutes of some figures, a point for each look."""

    times: deque[int] = field(default_factory=lambda: deque(maxlen=HISTORY))
    values: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def add(self, at_ms: int, value: float | None) -> None:
        self.times.append(at_ms)
        self.values.append(value)

    def thinned(self, points: int = 60) -> list[float | None]:
        """Returns at most so many values, the largest of each stretch: a peak is not left out."""
        found = list(self.values)
        step = max(1, -(-len(found) // points))
        return [
            max((v for v in found[i : i + step] if v is not None), default=None) for i in range(0, len(found), step)
        ]

    @property
    def peak(self) -> float | None:
        return max((value for value in self.values if value is not None), default=None)


class Watch:
    """Looks for one account."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self.snapshot = Snapshot(clock.wall_ms())
        self.series: dict[tuple[str, str], Series] = {}
        """(what, of whom) -> its last minutes"""
        self.changes: deque[Change] = deque(maxlen=CHANGES_MAX)
        self.windows: dict[str, Window] = {}
        self.told: dict[str, list[dict[str, Any]]] = {}
        """Address of a broker -> the events it keeps."""
        self._reports: dict[tuple[str, str], Report] = {}
        self._servers: dict[str, NameServerView] = {}
        self._viewers = 0
        self._looked = asyncio.Condition()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._number = 0

    # life

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="console watch")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await self.look()
            except Exception:
                log.exception("a look at the cluster failed")
            pause = LOOK_SECONDS if self._viewers else IDLE_SECONDS
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, pause - (self._clock.monotonic() - began))):
                    await self._wanted.wait()

    # what pages ask

    async def fresh(self) -> Snapshot:
        """Returns a snapshot that is at most a look old."""
        if self._clock.wall_ms() - self.snapshot.at_ms > LOOK_SECONDS * 1500 or not self.snapshot.number:
            await self._next(self.snapshot.number)
        return self.snapshot

    async def newer(self) -> Snapshot:
        """Returns a snapshot that was begun after this call, as far as brokers answer in time."""
        for _ in range(2):  # the look that is under way may have begun before
            await self._next(self.snapshot.number)
        return self.snapshot

    async def _next(self, seen: int) -> None:
        self._wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3 * LOOK_SECONDS), self._looked:
                await self._looked.wait_for(lambda: self.snapshot.number > seen)

    @contextlib.contextmanager
    def viewing(self) -> Any:
        """While a page is open the watch looks every second."""
        self._viewers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._viewers -= 1

    async def after(self, number: int) -> Snapshot:
        """Waits for a look later than this one."""
        async with self._looked:
            await self._looked.wait_for(lambda: self.snapshot.number > number)
        return self.snapshot

    def window(self, group: Group) -> int:
        """Returns the stretch of the log that the group's picture shows."""
        window = self.windows.setdefault(group.name, Window())
        return window.show(group.behind_most, self._clock.monotonic())

    def lag(self, what: str, whom: str) -> Series:
        return self.series.get((what, whom)) or Series()

    # looking

    async def look(self) -> None:
        """Asks name servers, then every broker they know or knew, all at once."""
        candidates = sorted(self._admin.session.namesrv.candidates())
        answers = await asyncio.gather(*(self._ask_server(address) for address in candidates))
        listed: dict[tuple[str, str], tuple[int, str]] = {}
        clusters: set[str] = set()
        refused = ""
        for view, groups, names, refusal in answers:
            self._servers[view.address] = view
            refused = refused or refusal
            clusters.update(names)
            for group in groups:
                for number, address in group.addresses.items():
                    listed[group.name, address] = (number, group.cluster)
        await self._ask_brokers(listed)
        self._number += 1
        now = self._clock.wall_ms()
        before, reports = self.snapshot, tuple(self._reports.values())
        refused = refused or next((r.error for r in reports if r.error.startswith("access refused")), "")
        groups_now = draw(reports, now)
        problem = ""
        if not any(server.answers for server in self._servers.values()):
            problem = next((server.error for server in self._servers.values()), "no name server answers")
        self.snapshot = Snapshot(
            now, groups_now, reports, tuple(self._servers[a] for a in candidates), problem, refused, self._number,
            tuple(sorted(clusters)) or before.clusters,
        )  # fmt: skip
        self._remember(before)
        if self._number % EVENTS_EVERY == 1:
            await self._ask_events()
        async with self._looked:
            self._looked.notify_all()

    async def _ask_server(self, address: str) -> tuple[NameServerView, Iterable[BrokerGroup], Iterable[str], str]:
        known = self._servers.get(address)
        since = known.since_ms if known is not None else 0
        session = self._admin.session
        try:
            reply = await session.invoke(address, RequestCode.GET_BROKER_CLUSTER_INFO, {}, timeout_ms=ANSWER_MS)
            if reply.code == ResponseCode.NO_PERMISSION:
                return (
                    NameServerView(address, True, reply.remark or "", since_ms=self._clock.wall_ms()),
                    (),
                    (),
                    reply.remark or "access refused",
                )
            reply.raise_for_code()
            groups, clusters = bodies.cluster_info_of(fastjson.loads(bytes(reply.body)))
        except TandemError as error:
            return NameServerView(address, False, str(error), known.brokers if known else 0, since), (), (), ""
        count = sum(len(group.addresses) for group in groups.values())
        return NameServerView(address, True, "", count, self._clock.wall_ms()), groups.values(), clusters, ""

    async def _ask_brokers(self, listed: dict[tuple[str, str], tuple[int, str]]) -> None:
        now = self._clock.wall_ms()
        places = dict(listed)
        for key, report in list(self._reports.items()):
            if key in listed:
                continue
            if now - report.heard_ms > FORGET_MS:
                del self._reports[key]
            elif any(server.answers for server in self._servers.values()) or report.listed:
                places[key] = (report.broker_id, report.cluster)
        chosen = list(places.items())[:NODES_MAX]
        found = await asyncio.gather(
            *(self._ask_broker(key, number, cluster, key in listed) for key, (number, cluster) in chosen)
        )
        for report in found:
            self._reports[report.group, report.address] = report
        self._drop_moved(listed)

    def _drop_moved(self, listed: dict[tuple[str, str], tuple[int, str]]) -> None:
        """A node that came back at another address is not also shown where it was: ids are taken once."""
        for key, report in list(self._reports.items()):
            taken = {(name, number) for (name, address), (number, _) in listed.items() if address != report.address}
            gone = not report.answers and key not in listed
            if gone and report.broker_id > 0 and (report.group, report.broker_id) in taken:
                del self._reports[key]

    async def _ask_broker(self, key: tuple[str, str], number: int, cluster: str, is_listed: bool) -> Report:
        name, address = key
        known = self._reports.get(key)
        base = known or Report(group=name, broker_id=number, address=address)
        base = replace(base, broker_id=number, cluster=cluster or base.cluster, listed=is_listed)
        try:
            detail, facts = await asyncio.gather(
                self._admin.ha_detail(address, timeout_ms=ANSWER_MS), self._facts(address)
            )
        except ReplyError as error:
            return replace(base, answers=True, error=error.remark or str(error), heard_ms=self._clock.wall_ms())
        except TandemError as error:
            return replace(base, answers=False, error=str(error))
        kind = str(detail.pop("kind", ""))
        return replace(
            base, kind=kind, detail=detail, facts=facts or base.facts, heard_ms=self._clock.wall_ms(), answers=True,
            error="", broker_id=detail.get("brokerId", number),
        )  # fmt: skip

    async def _facts(self, address: str) -> dict[str, str]:
        session = self._admin.session
        reply = await session.invoke(address, RequestCode.GET_BROKER_RUNTIME_INFO, {}, timeout_ms=ANSWER_MS)
        if reply.code != ResponseCode.SUCCESS:
            return {}
        return bodies.kv_table_of(bodies.load_object(reply.body, "runtime info"))

    async def _ask_events(self) -> None:
        ours = [r.address for r in self._reports.values() if r.answers and r.kind == "TandemQ"]
        found = await asyncio.gather(*(_quietly(self._admin.events(address)) for address in ours))
        for address, events in zip(ours, found, strict=True):
            if events is not None:
                self.told[address] = events

    # remembering

    def _remember(self, before: Snapshot) -> None:
        now = self.snapshot
        self._point("in", "", now.at_ms, now.in_tps)
        self._point("out", "", now.at_ms, now.out_tps)
        for group in now.groups:
            for member in group.members:
                whom = f"{group.name}/{member.address}"
                lag = None if member.is_master else member.lag_bytes
                if (
                    not member.is_master
                    and not member.answers
                    and group.end is not None
                    and member.received is not None
                ):
                    lag = max(0, group.end - member.received)
                self._point("lag", whom, now.at_ms, lag)
                self._point("in", whom, now.at_ms, member.in_tps)
        if before.number:
            self._note_changes(before)

    def _point(self, what: str, whom: str, at_ms: int, value: float | None) -> None:
        key = (what, whom)
        if key not in self.series:
            if len(self.series) >= SERIES_MAX:
                return
            self.series[key] = Series()
        self.series[key].add(at_ms, value)

    def _note_changes(self, before: Snapshot) -> None:
        now = self.snapshot
        states = {(r.group, r.address): r for r in before.reports}
        for report in now.reports:
            old = states.get((report.group, report.address))
            if old is None:
                self._change(report.group, "Joined", f"{report.address} is there", "healthy")
            elif old.answers and not report.answers:
                role = "the master" if old.detail.get("role") == "master" else "a slave"
                self._change(
                    report.group, "Lost", f"{report.address}, {role}, does not answer: {report.error}", "danger"
                )
            elif report.answers and not old.answers:
                self._change(report.group, "Back", f"{report.address} answers again", "healthy")
        words = {group.name: (group.tone, _plain(group.word)) for group in before.groups}
        for group in now.groups:
            if group.name in words and words[group.name][0] != group.tone:
                self._change(group.name, "Now", f"{group.word}. {group.strong}", group.tone)
        servers = {server.address: server.answers for server in before.name_servers}
        for server in now.name_servers:
            if servers.get(server.address, server.answers) != server.answers:
                text = "answers again" if server.answers else f"does not answer: {server.error}"
                self._change("", "Name server", f"{server.address} {text}", "" if server.answers else "unknown")

    def _change(self, group: str, what: str, text: str, tone: str) -> None:
        self.changes.appendleft(Change(self._clock.wall_ms(), group, what, text, tone))

    def timeline(self, group: str, count_max: int = 12) -> list[Change]:
        """Returns what happened to a group, newest first: as its brokers tell it, and as it was seen from here."""
        found = [change for change in self.changes if change.group == group]
        for report in self.snapshot.reports:
            if report.group != group:
                continue
            for event in self.told.get(report.address, ()):
                found.append(
                    Change(int(event.get("atMs") or 0), group, str(event.get("what", "")), str(event.get("text", "")),
                           str(event.get("tone", "")), report.address)
                )  # fmt: skip
        return sorted(found, key=lambda change: -change.at_ms)[:count_max]


def _plain(word: str) -> str:
    return word.partition(" for ")[0]


async def _quietly(work: Awaitable[T]) -> T | None:
    """Returns what an optional question gave; None where it is not answered."""
    try:
        return await work
    except (TandemError, ValueError):
        return None
