"""Topics: the list, one topic with its traffic and readers, and creating, changing and deleting them."""

import asyncio
from dataclasses import replace
from typing import Any

from tandemq.console.acts import acting, typed
from tandemq.console.routes import ActRoute, Endpoint, Page
from tandemq.console.visit import Visit, paged, segment
from tandemq.errors import ClientError, NoRoute, TandemError
from tandemq.model.topic import (
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    INTERNAL_PREFIX,
    INTERNAL_TOPICS,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    TopicConfig,
)

QUEUES_MAX = 1_024
QUEUES_SHOWN = 64
GROUPS_SHOWN = 20
_SYSTEM = ("TBW102", "RMQ_SYS_", "SELF_TEST_TOPIC", BENCHMARK_TOPIC, "DefaultHeartBeatSyncerTopic")


def kind_of(topic: str, brokers: set[str]) -> str:
    """Returns `user`, `retry`, `dead` or `system`."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead"
    is_system = topic in INTERNAL_TOPICS or topic in brokers or topic.startswith((INTERNAL_PREFIX, *_SYSTEM))
    return "system" if is_system or topic.endswith("_REPLY_TOPIC") else "user"


async def list_page(visit: Visit) -> dict[str, Any]:
    names = await visit.admin.topics()
    brokers = {group.name for group in visit.snapshot.groups} | set(visit.snapshot.clusters)
    kinds: dict[str, list[str]] = {"user": [], "retry": [], "dead": [], "system": []}
    for name in names:
        kinds[kind_of(name, brokers)].append(name)
    kind = visit.choice("kind", *kinds)
    wanted = visit.text("q").strip()
    chosen = [name for name in kinds[kind] if wanted.lower() in name.lower()]
    page = paged(visit, chosen)
    rows = await asyncio.gather(*(_row(visit, name) for name in page.items))
    return {
        "kinds": {name: len(found) for name, found in kinds.items()}, "kind": kind, "wanted": wanted, "page": page,
        "rows": rows, "total": len(names),
    }  # fmt: skip


async def _row(visit: Visit, name: str) -> dict[str, Any]:
    """Returns one line of the list; what can't be asked now is not known, and the line says why."""
    try:
        statuses = await visit.admin.topic_status(name)
    except TandemError as error:
        return {"name": name, "problem": str(error), "queues": None, "messages": None, "last_ms": 0}
    return {
        "name": name, "problem": "", "queues": len(statuses), "messages": sum(s.count for s in statuses),
        "last_ms": max((s.last_update_ms for s in statuses), default=0),
    }  # fmt: skip


async def one_page(visit: Visit) -> dict[str, Any]:
    name = visit.part("topic")
    found = await describe(visit, name)
    config = next(iter(found["configs"].values()), None)
    return {**found, "config": config, "reads": bool(config and config.perm & PERM_READ),
            "writes": bool(config and config.perm & PERM_WRITE), "editing": visit.text("edit") != ""}  # fmt: skip


async def describe(visit: Visit, name: str) -> dict[str, Any]:
    """Returns everything the cluster tells of a topic; a part that nobody answers is left out and told."""
    admin, problems = visit.admin, []
    statuses: list[Any] = []
    try:
        statuses = await admin.topic_status(name)
    except NoRoute:
        raise
    except TandemError as error:
        problems.append(str(error))
    configs: dict[str, TopicConfig] = {}
    groups: list[str] = []
    readers: list[tuple[str, str]] = []
    try:
        configs, groups, readers = await asyncio.gather(
            admin.topic_configs(name), admin.groups_of_topic(name), admin.readers(name)
        )
    except TandemError as error:
        problems.append(str(error))
    came, size = await asyncio.gather(
        _figure(visit, readers, "TOPIC_PUT_NUMS", name), _figure(visit, readers, "TOPIC_PUT_SIZE", name)
    )
    shown = groups[:GROUPS_SHOWN]
    lags = await asyncio.gather(*(_lag(visit, group, name) for group in shown))
    total = sum(status.count for status in statuses)
    most = max((status.max_offset for status in statuses), default=0)
    mean = size["day"][1] / came["day"][1] if came["day"][1] else 0.0
    return {
        "topic": name, "statuses": statuses[:QUEUES_SHOWN], "queue_count": len(statuses), "configs": configs,
        "groups": list(zip(shown, lags, strict=True)), "group_count": len(groups), "problems": problems,
        "in_tps": came["minute"][0], "in_bytes": size["minute"][0], "day_count": came["day"][1],
        "day_bytes": size["day"][1], "total": total, "most": most, "mean": mean,
        "out_tps": sum(lag["tps"] or 0 for lag in lags),
        "behind": [group for group, lag in zip(shown, lags, strict=True) if lag["lag"]],
    }  # fmt: skip


async def _figure(
    visit: Visit, readers: list[tuple[str, str]], figure: str, key: str
) -> dict[str, tuple[float, float]]:
    answers = await asyncio.gather(
        *(visit.admin.counted(address, figure, key) for _, address in readers), return_exceptions=True
    )
    found = [answer for answer in answers if isinstance(answer, dict)]
    return {
        span: (sum(a.get(span, (0, 0))[0] for a in found), sum(a.get(span, (0, 0))[1] for a in found))
        for span in ("minute", "hour", "day")
    }


async def _lag(visit: Visit, group: str, topic: str) -> dict[str, Any]:
    try:
        progress = await visit.admin.progress(group, topic)
    except TandemError as error:
        return {"lag": None, "tps": None, "problem": str(error), "since": None}
    late = [queue.last_timestamp_ms for queue in progress.queues if queue.lag and queue.last_timestamp_ms > 0]
    since = visit.now_ms - min(late) if late else None
    return {"lag": progress.lag, "tps": progress.consume_tps, "problem": "", "since": since}


async def new_page(visit: Visit) -> dict[str, Any]:
    return {"brokers": [group.name for group in visit.snapshot.groups]}


async def save(visit: Visit) -> str:
    """Creates a topic, or changes one that is there."""
    name = visit.field("topic").strip()
    with acting(visit, "save topic", name) as act:
        perm = (PERM_READ if visit.field("read") else 0) | (PERM_WRITE if visit.field("write") else 0)
        before = await visit.admin.topic_configs(name) if name else {}
        old = next(iter(before.values()), None)
        config = TopicConfig(
            name=name,
            read_queues=visit.whole("readQueues", 1, QUEUES_MAX),
            write_queues=visit.whole("writeQueues", 1, QUEUES_MAX),
            perm=perm,
            order=old.order if old else False,
            attributes=_attributes(visit.field("attributes")),
        )
        if old is not None:
            config = replace(config, filter_type=old.filter_type, sys_flag=old.sys_flag)
        act.before, act.after = _told(old), _told(config)
        done = await visit.admin.create_topic(config)
        visit.link.session.routes.forget(name)
        act.outcome = f"on {', '.join(done)}"
    return visit.url(f"/topics/{segment(name)}", done=act.number)


def _attributes(text: str) -> dict[str, str]:
    found = {}
    for line in text.replace(",", "\n").splitlines():
        if not line.strip():
            continue
        name, sign, value = line.strip().lstrip("+").partition("=")
        if not (name and sign):
            raise ClientError(f"attribute {line[:60]!r}: name=value is expected, one a line")
        found[name.strip()] = value.strip()
    return found


def _told(config: TopicConfig | None) -> str:
    if config is None:
        return "not there"
    perm = ("r" if config.perm & PERM_READ else "-") + ("w" if config.perm & PERM_WRITE else "-")
    attributes = "".join(f", {name}={value}" for name, value in config.attributes.items())
    return f"{config.read_queues} read and {config.write_queues} write queues, {perm}{attributes}"


async def delete(visit: Visit) -> str:
    name = visit.part("topic")
    with acting(visit, "delete topic", name) as act:
        typed(visit, name)
        act.before, act.after = _told(next(iter((await visit.admin.topic_configs(name)).values()), None)), "not there"
        act.outcome = f"on {', '.join(await visit.admin.delete_topic(name))}"
    return visit.url("/topics", done=act.number)


# The API --------------------------------------------------------------------------------------------------------------


async def api_list(visit: Visit) -> Any:
    found = await list_page(visit)
    page = found["page"]
    return {"topics": found["rows"], "page": page.number, "pages": page.pages, "total": page.total}


async def api_one(visit: Visit) -> Any:
    return await describe(visit, visit.part("topic"))


async def api_save(visit: Visit) -> Any:
    return {"next": await save(visit), "act": visit.console.journal.newest()[0]}


async def api_delete(visit: Visit) -> Any:
    return {"next": await delete(visit), "act": visit.console.journal.newest()[0]}


PAGES = (
    Page("/topics", "topics.html", list_page, every=5.0),
    Page("/topics/new", "topic-new.html", new_page, every=10.0),
    Page("/topics/{topic:path}", "topic.html", one_page, every=2.0),
)
ACTS = (ActRoute("/act/topics/save", save), ActRoute("/act/topics/delete/{topic:path}", delete))
ENDPOINTS = (
    Endpoint("GET", "/api/v1/topics", "Topics, a page of them.", api_list,
             {"q": "part of the name", "kind": "user, retry, dead or system", "page": "from 1"}),
    Endpoint("POST", "/api/v1/topics", "Creates or changes a topic.", api_save,
             body={"topic": "its name", "readQueues": "1 to 1024", "writeQueues": "1 to 1024", "read": "true or false",
                   "write": "true or false", "attributes": "name=value, one a line"}),
    Endpoint("GET", "/api/v1/topics/{topic:path}", "One topic: settings, queues, rates, readers.", api_one),
    Endpoint("DELETE", "/api/v1/topics/{topic:path}", "Deletes a topic.", api_delete, body={"name": "typed again"}),
)  # fmt: skip
