"""Consumer groups: who is behind and by how long, who reads what, and moving offsets with a dry run before."""

import asyncio
import contextlib
from typing import Any

from tandemq.client.admin_ha import ROCKETMQ_4, TANDEMQ
from tandemq.client.admin_views import GroupProgress
from tandemq.console.acts import acting, typed
from tandemq.console.reset_plan import HOWS, Step, plan
from tandemq.console.routes import ActRoute, Endpoint, Page
from tandemq.console.times import local_text, parse_time
from tandemq.console.visit import Visit, paged, segment
from tandemq.errors import ClientError, NoRoute, ReplyError, TandemError
from tandemq.model.topic import DLQ_PREFIX, RETRY_PREFIX, SubscriptionGroupConfig

INTERNAL = ("CID_", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "TANDEMQ_", "__MONITOR_CONSUMER")
QUEUES_SHOWN = 200
MEMBERS_SHOWN = 200


async def list_page(visit: Visit) -> dict[str, Any]:
    names = list(await visit.admin.groups())
    kind = visit.choice("kind", "user", "internal")
    wanted = visit.text("q").strip()
    of_kind = {"user": [n for n in names if not n.startswith(INTERNAL)],
               "internal": [n for n in names if n.startswith(INTERNAL)]}  # fmt: skip
    page = paged(visit, [name for name in of_kind[kind] if wanted.lower() in name.lower()])
    rows = list(await asyncio.gather(*(_row(visit, name) for name in page.items)))
    rows.sort(key=lambda row: (-(row["since"] or 0), -(row["lag"] or 0), row["name"]))  # the worst of the page first
    counts = {name: len(found) for name, found in of_kind.items()}
    return {"page": page, "rows": rows, "wanted": wanted, "kind": kind, "counts": counts}


async def _row(visit: Visit, name: str) -> dict[str, Any]:
    try:
        progress, members = await asyncio.gather(visit.admin.progress(name), visit.admin.members(name))
    except TandemError as error:
        return {
            "name": name,
            "problem": str(error),
            "lag": None,
            "since": None,
            "members": None,
            "topics": (),
            "tps": None,
        }
    return {
        "name": name, "problem": "", "lag": progress.lag, "since": since(progress, visit.now_ms),
        "members": len(members), "tps": progress.consume_tps,
        "topics": sorted({q.queue.topic for q in progress.queues if not q.queue.topic.startswith(RETRY_PREFIX)}),
    }  # fmt: skip


def since(progress: GroupProgress, now_ms: int) -> int | None:
    """Returns how long ago the last message was stored that a late queue has consumed; None if none is late."""
    late = [q.last_timestamp_ms for q in progress.queues if q.lag and q.last_timestamp_ms > 0]
    return now_ms - min(late) if late else None


async def describe(visit: Visit, name: str) -> dict[str, Any]:
    """Returns everything the cluster tells of a group; NoRoute if nobody knows it."""
    admin = visit.admin
    groups, progress, members = await asyncio.gather(admin.groups(), admin.progress(name), admin.members(name))
    if name not in groups and not progress.queues and not members:
        raise NoRoute(f"no broker knows group {name!r}; the Groups page lists those there are")
    topics = sorted({lag.queue.topic for lag in progress.queues})
    answers = await asyncio.gather(*(admin.delays(name, topic) for topic in topics[:20]), return_exceptions=True)
    delays = {queue: ms for answer in answers if isinstance(answer, dict) for queue, ms in answer.items()}
    lags = sorted(progress.queues, key=lambda lag: (-delays.get(lag.queue, 0), -lag.lag, lag.queue))
    rows = [
        {
            "topic": lag.queue.topic, "queue": f"{lag.queue.broker_name}/{lag.queue.queue_id}", "lag": lag.lag,
            "offset": lag.consumer_offset, "end": lag.broker_offset, "last_ms": lag.last_timestamp_ms,
            "delay": delays.get(lag.queue) if lag.lag else 0,
        }
        for lag in lags
    ]  # fmt: skip
    read = {topic for member in members for topic in member.subscriptions}
    return {
        "group": name, "config": groups.get(name), "lag": progress.lag, "tps": progress.consume_tps,
        "rows": rows[:QUEUES_SHOWN], "queue_count": len(rows), "members": members[:MEMBERS_SHOWN],
        "member_count": len(members), "topics": topics, "unread": [t for t in topics if read and t not in read],
        "worst": max((row["delay"] or 0 for row in rows), default=0),
        "retry": RETRY_PREFIX + name, "dead": DLQ_PREFIX + name,
    }  # fmt: skip


async def one_page(visit: Visit) -> dict[str, Any]:
    name = visit.part("group")
    found = await describe(visit, name)
    how, topic = visit.choice("to", "", *HOWS), visit.text("topic")
    base = {
        **found, "how": how, "wanted_topic": topic, "amount": visit.text("amount"), "steps": None, "refusal": "",
        "at": visit.text("at") or local_text(visit.now_ms - 3_600_000),
        "resettable": [t for t in found["topics"] if not t.startswith(RETRY_PREFIX)] or found["topics"],
    }  # fmt: skip
    if how and topic:
        try:
            base["steps"] = await dry_run(visit, name, topic, how, visit.text("amount"), visit.text("at"))
            base["refusal"] = _refusal(visit, found["member_count"], how)
        except ClientError as error:
            base["refusal"] = str(error)
    return base


async def dry_run(visit: Visit, name: str, topic: str, how: str, amount: str, at: str) -> list[Step]:
    """Returns what a reset would do; nothing is changed."""
    admin = visit.admin
    ranges = await admin.queue_ranges(topic)
    progress = await admin.progress(name, topic)
    offsets = {lag.queue: max(0, lag.consumer_offset) for lag in progress.queues}
    number, at_time = 0, None
    if how in ("offset", "shift"):
        given = amount.strip()
        if not given.lstrip("+-").isdecimal():
            raise ClientError(f"{how} {given[:40]!r}: a whole number is expected, such as -100")
        number = int(given)
    if how == "time":
        moment = parse_time(at, visit.now_ms)
        found = await asyncio.gather(*(admin.offset_at(queue, moment) for queue in ranges))
        at_time = dict(zip(ranges, found, strict=True))
    return plan(ranges, offsets, how, number, at_time)


def _refusal(visit: Visit, members: int, how: str) -> str:
    kinds = {group.kind for group in visit.snapshot.groups}
    if members and how in ("offset", "shift") and kinds != {"TandemQ"}:
        return (
            "members of the group run, and RocketMQ's brokers only move a running group to a time: stop the members "
            "or choose a time"
        )
    return ""


async def reset(visit: Visit) -> str:
    name, topic, how = visit.part("group"), visit.field("topic"), visit.field("to")
    with acting(visit, "reset offsets", f"{name} on {topic}") as act:
        typed(visit, name)
        if how not in HOWS:
            raise ClientError(f"to={how[:20]!r}: one of {', '.join(HOWS)} is expected")
        steps = await dry_run(visit, name, topic, how, visit.field("amount"), visit.field("at"))
        members = await visit.admin.members(name)
        if problem := _refusal(visit, len(members), how):
            raise ClientError(problem)
        kinds = {group.name: group.kind for group in visit.snapshot.groups}
        for step in steps:
            try:
                await _move(visit, kinds.get(step.queue.broker_name, ""), name, step, running=bool(members))
                act.details.append({"where": step.name, "outcome": f"{step.before:,} → {step.after:,}", "ok": True})
            except TandemError as error:
                act.details.append({"where": step.name, "outcome": str(error), "ok": False})
        if members and set(kinds.values()) != {"TandemQ"}:
            moment = {"earliest": 0, "latest": -1}.get(how)
            moment = parse_time(visit.field("at"), visit.now_ms) if moment is None else moment
            await visit.admin.reset_offsets(name, topic, moment)
        act.before = f"offset {sum(step.before for step in steps):,} in all"
        act.after = f"offset {sum(step.after for step in steps):,} in all"
        act.ok = all(line["ok"] for line in act.details)
        act.outcome = f"{sum(line['ok'] for line in act.details)} of {len(steps)} queues moved"
    return visit.url(f"/groups/{segment(name)}", done=act.number)


async def _move(visit: Visit, kind: str, group: str, step: Step, *, running: bool) -> None:
    """Moves a group on one queue; ClientError where the broker says yes and does not do it.

    RocketMQ 5 ignores a commit, with success, while an earlier reset waits for the group's members: it has to be reset
    again. RocketMQ 4 has no reset of one queue, and one without members can only be committed for.
    """
    admin, queue = visit.admin, step.queue
    if kind == TANDEMQ:
        await admin.reset_queue(group, queue, step.after)
        return
    if running:
        return  # RocketMQ moves a running group as a whole, to a time
    if kind != ROCKETMQ_4:
        with contextlib.suppress(ReplyError):
            await admin.reset_queue(group, queue, step.after)
    session = visit.link.session
    address = await session.master(queue.broker_name, queue.topic)
    if await session.api.query_offset(address, group, queue) == step.after:
        return
    await admin.set_offset(group, queue, step.after)
    found = await session.api.query_offset(address, group, queue)
    if found != step.after:
        raise ClientError(f"the broker took it and still answers offset {found}")


async def create(visit: Visit) -> str:
    name = visit.field("group").strip()
    with acting(visit, "create group", name) as act:
        config = SubscriptionGroupConfig(name=name, retry_max_times=visit.whole("retries", 0, 1000))
        act.before = "there already" if name in await visit.admin.groups() else "not there"
        act.outcome = f"on {', '.join(await visit.admin.create_group(config))}"
        act.after = f"{config.retry_max_times} retries"
    return visit.url(f"/groups/{segment(name)}", done=act.number)


async def delete(visit: Visit) -> str:
    name = visit.part("group")
    with acting(visit, "delete group", name) as act:
        typed(visit, name)
        progress = await visit.admin.progress(name)
        act.before, act.after = f"{len(progress.queues)} offsets, lag {progress.lag:,}", "not there"
        act.outcome = f"on {', '.join(await visit.admin.delete_group(name))}"
    return visit.url("/groups", done=act.number)


# The API --------------------------------------------------------------------------------------------------------------


async def api_list(visit: Visit) -> Any:
    found = await list_page(visit)
    page = found["page"]
    return {"groups": found["rows"], "page": page.number, "pages": page.pages, "total": page.total}


async def api_one(visit: Visit) -> Any:
    return await describe(visit, visit.part("group"))


async def api_dry_run(visit: Visit) -> Any:
    how = visit.choice("to", *HOWS)
    steps = await dry_run(visit, visit.part("group"), visit.text("topic"), how, visit.text("amount"), visit.text("at"))
    return {"steps": [{"queue": s.name, "before": s.before, "after": s.after, "end": s.end} for s in steps]}


async def api_reset(visit: Visit) -> Any:
    return {"next": await reset(visit), "act": visit.console.journal.newest()[0]}


_RESET = {"topic": "of which topic", "to": ", ".join(HOWS), "amount": "offset, or how far to shift", "at": "a time"}
PAGES = (
    Page("/groups", "groups.html", list_page, every=5.0),
    Page("/groups/{group:path}", "group.html", one_page, every=2.0),
)
ACTS = (
    ActRoute("/act/groups/create", create),
    ActRoute("/act/groups/reset/{group:path}", reset),
    ActRoute("/act/groups/delete/{group:path}", delete),
)
ENDPOINTS = (
    Endpoint("GET", "/api/v1/groups", "Consumer groups, a page of them.", api_list,
             {"q": "part of the name", "kind": "user or internal", "page": "from 1"}),
    Endpoint("GET", "/api/v1/reset/{group:path}", "What a reset would do; nothing is changed.", api_dry_run, _RESET),
    Endpoint("POST", "/api/v1/reset/{group:path}", "Moves the offsets of a group.", api_reset,
             body={**_RESET, "name": "the group, typed again"}),
    Endpoint("GET", "/api/v1/groups/{group:path}", "One group: lag, members, settings.", api_one),
)  # fmt: skip
