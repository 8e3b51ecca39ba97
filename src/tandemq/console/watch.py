"""Looks at the whole cluster once a second and remembers a little: who was there, rates, lags, what changed.

One watch serves every open page of an account, so that more viewers cost the brokers nothing. While nobody looks it
asks only now and then, to keep the charts going. All it knows began with this process and is bounded.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tandemq.client.admin import Admin
from tandemq.clock import Clock
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.console.axis import Window
from tandemq.console.picture import Group, Report, draw
from tandemq.console.snapshot import Change, NameServerView, Series, Snapshot
from tandemq.errors import ReplyError, TandemError
from tandemq.model.route import BrokerGroup

log = logging.getLogger("tandemq.console")

LOOK_SECONDS = 1.0
IDLE_SECONDS = 5.0
"""Between looks while no page is open."""
ANSWER_MS = 1_000
"""A node that says nothing for this long does not answer, and the page says so within two seconds."""
NODES_MAX = 512
SERIES_MAX = 3 * NODES_MAX + 2
CHANGES_MAX = 200
FORGET_MS = 3_600_000
"""A node that no name server lists and that nobody heard for an hour is forgotten."""
EVENTS_EVERY = 5
"""Looks between two questions for events."""

T = TypeVar("T")


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
        self._clusters: tuple[str, ...] = ()
        self._refusal = ""
        self._viewers = 0
        self._waiters: set[asyncio.Event] = set()
        """One for each who waits for a newer snapshot."""
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self._asking_events: asyncio.Task[None] | None = None
        self._looks_to_events = 0
        self._number = self._noted = 0

    # life

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="console watch")

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._asking_events, *self._checks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = self._asking_events = None

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
            async with asyncio.timeout(3 * LOOK_SECONDS):
                await self.after(seen)

    @contextlib.contextmanager
    def viewing(self) -> Iterator[None]:
        """Makes the watch look every second while a page is open."""
        self._viewers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._viewers -= 1

    async def after(self, number: int) -> Snapshot:
        """Waits for a snapshot later than this one."""
        newer = asyncio.Event()
        self._waiters.add(newer)
        try:
            while self.snapshot.number <= number:
                newer.clear()
                await newer.wait()
        finally:
            self._waiters.discard(newer)
        return self.snapshot

    def window(self, group: Group) -> int:
        """Returns the stretch of the log that the group's picture shows."""
        window = self.windows.setdefault(group.name, Window())
        return window.show(group.behind_most, self._clock.monotonic())

    def lag(self, what: str, whom: str) -> Series:
        return self.series.get((what, whom)) or Series()

    # looking

    async def look(self) -> None:
        """Asks name servers and every broker they know or knew, all at once; then those that are new.

        At once, so that a name server that hangs does not keep back what a broker has to tell.
        """
        candidates = sorted(self._admin.session.namesrv.candidates())
        known = self._kept()
        answers, heard = await asyncio.gather(
            asyncio.gather(*(self._ask_server(address) for address in candidates)),
            asyncio.gather(*(self._ask_broker(report) for report in known.values())),
        )
        listed: dict[tuple[str, str], tuple[int, str]] = {}
        clusters: set[str] = set()
        self._refusal = ""
        for view, groups, names, refusal in answers:
            self._servers[view.address] = view
            self._refusal = self._refusal or refusal
            clusters.update(names)
            for group in groups:
                for number, address in group.addresses.items():
                    listed[group.name, address] = (number, group.cluster)
        self._clusters = tuple(sorted(clusters)) or self._clusters
        fresh = [key for key in listed if key not in known][: NODES_MAX - len(known)]
        heard += await asyncio.gather(*(self._ask_broker(Report.of(key, *listed[key])) for key in fresh))
        for report in heard:
            key = (report.group, report.address)
            if self._reports.get(key) is known.get(key):  # else it was lost after it had answered this look
                self._take(report, listed if any(view.answers for view, *_ in answers) else None)
        self._drop_moved(listed)
        self._publish(candidates)

    def _publish(self, candidates: Iterable[str]) -> None:
        """Draws what is known now and tells the pages."""
        self._number += 1
        now = self._clock.wall_ms()
        before, reports = self.snapshot, tuple(self._reports.values())
        refused = self._refusal or next((r.error for r in reports if r.error.startswith("access refused")), "")
        problem = ""
        if not any(server.answers for server in self._servers.values()):
            problem = next((server.error for server in self._servers.values()), "no name server answers")
        self.snapshot = Snapshot(
            now, draw(reports, now), reports, tuple(self._servers[a] for a in candidates if a in self._servers),
            problem, refused, self._number, self._clusters,
        )  # fmt: skip
        has_changed = self._remember(before)
        for waiter in self._waiters:
            waiter.set()
        self._looks_to_events = 0 if has_changed else self._looks_to_events - 1
        if self._looks_to_events <= 0 and (self._asking_events is None or self._asking_events.done()):
            self._looks_to_events = EVENTS_EVERY
            self._asking_events = asyncio.get_running_loop().create_task(self._ask_events(), name="console events")

    def lost(self, address: str) -> None:
        """Notes that a connection has closed: who ended it is asked at once, so that pages need not wait for a look."""
        for report in tuple(self._reports.values()):
            if report.address == address and report.answers and len(self._checks) < NODES_MAX:
                task = asyncio.get_running_loop().create_task(self._check(report), name="console check")
                self._checks.add(task)
                task.add_done_callback(self._checks.discard)

    async def _check(self, report: Report) -> None:
        found = await self._ask_broker(report)
        if not found.answers and (report.group, report.address) in self._reports:
            self._take(found, None)
            self._publish(sorted(self._admin.session.namesrv.candidates()))

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

    def _kept(self) -> dict[tuple[str, str], Report]:
        """Returns the brokers that are still asked; forgets those that have been gone for long."""
        now = self._clock.wall_ms()
        for key, report in list(self._reports.items()):
            if not report.listed and now - report.heard_ms > FORGET_MS:
                del self._reports[key]
        return dict(self._reports)

    def _take(self, report: Report, listed: Mapping[tuple[str, str], tuple[int, str]] | None) -> None:
        """Keeps what a broker said, with what name servers say of it; None while none of them says anything."""
        key = (report.group, report.address)
        if listed is not None:
            number, cluster = listed.get(key, (report.broker_id, report.cluster))
            told = report.detail.get("brokerId", number) if report.answers and report.detail else number
            report = replace(report, listed=key in listed, broker_id=told, cluster=cluster or report.cluster)
        self._reports[key] = report

    def _drop_moved(self, listed: dict[tuple[str, str], tuple[int, str]]) -> None:
        """Drops the old place of a node that came back at another address: an id is shown once."""
        taken = {(name, number) for (name, _), (number, _) in listed.items()}
        for key, report in list(self._reports.items()):
            gone = not report.answers and key not in listed
            if gone and report.broker_id > 0 and (report.group, report.broker_id) in taken:
                del self._reports[key]

    async def _ask_broker(self, known: Report) -> Report:
        address = known.address
        try:
            detail, facts = await asyncio.gather(
                self._admin.ha_detail(address, timeout_ms=ANSWER_MS), self._facts(address)
            )
        except ReplyError as error:
            return replace(known, answers=True, error=error.remark or str(error), heard_ms=self._clock.wall_ms())
        except TandemError as error:
            return replace(known, answers=False, error=str(error))
        kind = str(detail.pop("kind", ""))
        return replace(
            known, kind=kind, detail=detail, facts=facts or known.facts, heard_ms=self._clock.wall_ms(), answers=True,
            error="", broker_id=detail.get("brokerId", known.broker_id),
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

    def _remember(self, before: Snapshot) -> bool:
        """Adds a point to every chart and notes what has changed; returns whether something has."""
        now, noted = self.snapshot, self._noted
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
                self._point("lag_ms", whom, now.at_ms, member.lag_ms if member.answers else None)
                self._point("in", whom, now.at_ms, member.in_tps)
        if before.number:
            self._note_changes(before)
        return self._noted != noted

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
                why = report.error.removeprefix(f"{report.address}: ")
                self._change(report.group, "Lost", f"{report.address}, {role}, does not answer: {why}", "danger")
            elif report.answers and not old.answers:
                self._change(report.group, "Back", f"{report.address} answers again", "healthy")
        words = {group.name: (group.tone, _plain(group.word)) for group in before.groups}
        for group in now.groups:
            if group.name in words and words[group.name][0] != group.tone:
                self._change(group.name, "Now", f"{group.word}. {group.strong}", group.tone)
        servers = {server.address: server.answers for server in before.name_servers}
        for server in now.name_servers:
            if servers.get(server.address, server.answers) != server.answers:
                why = server.error.removeprefix(f"{server.address}: ")
                text = "answers again" if server.answers else f"does not answer: {why}"
                self._change("", "Name server", f"{server.address} {text}", "" if server.answers else "unknown")

    def _change(self, group: str, what: str, text: str, tone: str) -> None:
        self._noted += 1
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
