"""Dead letters: a work list. Which groups gave up on what, and sending selected messages again, outcome by outcome."""

import asyncio
from typing import Any

from tandemq.client.dead_letters import DeadLetters
from tandemq.console.acts import acting
from tandemq.console.browse import Browser
from tandemq.console.pages.messages import PLACE, row
from tandemq.console.routes import ActRoute, Endpoint, Page
from tandemq.console.visit import Visit, paged, segment
from tandemq.errors import ClientError, TandemError
from tandemq.model import message as names
from tandemq.model.topic import DLQ_PREFIX

SELECTED_MAX = 1_000


async def list_page(visit: Visit) -> dict[str, Any]:
    topics = [topic for topic in await visit.admin.topics() if topic.startswith(DLQ_PREFIX)]
    wanted = visit.text("q").strip()
    page = paged(visit, [topic for topic in topics if wanted.lower() in topic.lower()])
    rows = list(await asyncio.gather(*(_group(visit, topic) for topic in page.items)))
    rows.sort(key=lambda found: (-(found["count"] or 0), found["group"]))
    return {"rows": rows, "page": page, "wanted": wanted, "total": sum(found["count"] or 0 for found in rows)}


async def _group(visit: Visit, topic: str) -> dict[str, Any]:
    base = {"group": topic.removeprefix(DLQ_PREFIX), "topic": topic, "count": None, "last_ms": 0, "problem": ""}
    try:
        statuses = await visit.admin.topic_status(topic)
    except TandemError as error:
        return {**base, "problem": str(error)}
    return {
        **base,
        "count": sum(s.count for s in statuses),
        "last_ms": max((s.last_update_ms for s in statuses), default=0),
    }


async def one_page(visit: Visit) -> dict[str, Any]:
    group = visit.part("group")
    letters = DeadLetters(visit.admin)
    if not await letters.queues(group):
        return {"group": group, "topic": DLQ_PREFIX + group, "rows": [], "older_ms": None, "problems": (), "count": 0}
    browser = Browser(visit.admin, visit.console.clock)
    until = visit.number("until", 0, 0, 2**62)
    found = await browser.newest(DLQ_PREFIX + group, "", until or None)
    statuses = await visit.admin.topic_status(DLQ_PREFIX + group)
    rows = [
        {
            **row(message), "tries": message.reconsume_times,
            "origin": message.properties.get(names.DLQ_ORIGIN_TOPIC) or message.properties.get(names.RETRY_TOPIC, ""),
        }
        for message in found.messages
    ]  # fmt: skip
    return {
        "group": group, "topic": DLQ_PREFIX + group, "rows": rows, "older_ms": found.older_ms,
        "problems": found.problems, "count": sum(status.count for status in statuses),
    }  # fmt: skip


async def resend(visit: Visit) -> str:
    """Sends the selected dead letters again; each has its own outcome."""
    group = visit.part("group")
    picks = visit.form.get("pick", [])
    to_topic = visit.field("to") != "group"
    with acting(visit, "resend dead letters", f"{group}: {len(picks)} selected") as act:
        if not picks:
            raise ClientError("nothing is selected: tick the messages to send again")
        if len(picks) > SELECTED_MAX:
            raise ClientError(f"{len(picks):,} are selected, at most {SELECTED_MAX:,} at a time")
        letters = DeadLetters(visit.admin)
        browser = Browser(visit.admin, visit.console.clock)
        for pick in picks:
            act.details.append(await _resent(letters, browser, group, pick, to_topic))
        sent = sum(line["ok"] for line in act.details)
        act.ok = sent == len(picks)
        act.after = "to the topics they came from" if to_topic else "to the group alone, by its retry topic"
        act.outcome = f"{sent} of {len(picks)} sent"
    return visit.url(f"/dead-letters/{segment(group)}", done=act.number)


async def _resent(letters: DeadLetters, browser: Browser, group: str, pick: str, to_topic: bool) -> dict[str, Any]:
    fits = PLACE.match(pick)
    if fits is None:
        return {"where": pick[:80], "outcome": "broker/queue@offset is expected", "ok": False}
    try:
        message = await browser.one(DLQ_PREFIX + group, fits["queue"], int(fits["offset"]))
        result = await letters.send(group, message, to_topic=to_topic)
    except TandemError as error:
        return {"where": pick, "outcome": str(error), "ok": False}
    place = f"{result.queue.topic} {result.queue.broker_name}/{result.queue.queue_id}@{result.queue_offset}"
    return {"where": pick, "outcome": f"{result.status.name}: {place}", "ok": result.ok}


async def api_list(visit: Visit) -> Any:
    found = await list_page(visit)
    return {"groups": found["rows"], "page": found["page"].number, "pages": found["page"].pages}


async def api_one(visit: Visit) -> Any:
    return await one_page(visit)


async def api_resend(visit: Visit) -> Any:
    return {"next": await resend(visit), "act": visit.console.journal.newest()[0]}


PAGES = (
    Page("/dead-letters", "dead-letters.html", list_page, every=5.0),
    Page("/dead-letters/{group:path}", "dead-letter-group.html", one_page, every=5.0),
)
ACTS = (ActRoute("/act/dead-letters/{group:path}", resend),)
ENDPOINTS = (
    Endpoint("GET", "/api/v1/dead-letters", "Groups with dead letters.", api_list, {"q": "part of the name"}),
    Endpoint("GET", "/api/v1/dead-letters/{group:path}", "Dead letters of a group, newest first.", api_one,
             {"until": "ms since 1970: only older ones"}),
    Endpoint("POST", "/api/v1/dead-letters/{group:path}", "Sends dead letters again, one by one.", api_resend,
             body={"pick": "list of broker/queue@offset", "to": "topic or group"}),
)  # fmt: skip
