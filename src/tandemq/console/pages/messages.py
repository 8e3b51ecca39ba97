"""Messages: browse, search, tail, look at one and at its path; send and send again."""

import asyncio
import ipaddress
import re
from typing import Any

from tandemq.client.message import ReceivedMessage
from tandemq.console import bodies
from tandemq.console.acts import acting
from tandemq.console.browse import Browser, Found
from tandemq.console.picture import Group
from tandemq.console.routes import ActRoute, Endpoint, Page
from tandemq.console.snapshot import Snapshot
from tandemq.console.times import local_text, parse_time
from tandemq.console.visit import Visit
from tandemq.errors import ClientError, TandemError
from tandemq.model import message as names
from tandemq.model.message import Message
from tandemq.model.topic import DLQ_PREFIX, RETRY_PREFIX, QueueRef

HOWS = ("newest", "tail", "time", "offset", "key", "id", "tag", "body")
NOT_RESENT = frozenset(
    {
        names.UNIQUE_KEY, names.KEYS, names.TAGS, names.WAIT, names.DELAY, names.CLUSTER, names.MSG_REGION,
        names.TRACE_ON, names.REAL_TOPIC, names.REAL_QUEUE_ID, names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES,
        names.TRANSACTION_PREPARED_FLAG, names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID, names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID, names.PRODUCER_GROUP, names.TRANSACTION_ID,
    }
)  # fmt: skip
"""Properties of the first life of a message: who sends it again gives its own."""
GROUPS_MAX = 20
PLACE = re.compile(r"(?P<queue>.+/\d+)@(?P<offset>\d+)\Z")


async def page(visit: Visit) -> dict[str, Any]:
    topic = visit.text("topic").strip()
    how = visit.choice("how", *HOWS)
    base = {
        "topic": topic, "how": how, "value": visit.text("value"), "queue": visit.text("queue"),
        "form": visit.choice("form", "", "send"), "at": visit.text("at") or local_text(visit.now_ms - 900_000),
        "view": visit.choice("view", "json", "text", "hex"), "place": visit.text("pick"),
    }  # fmt: skip
    if not topic and not (how == "id" and base["value"]):
        return {**base, "found": None, "rows": [], "queues": [], "picked": None, "path_of": None, "problem": ""}
    problem, found = "", Found(())
    try:
        found = await find(visit, topic, how)
    except ClientError as error:
        problem = str(error)
    queues = await visit.admin.queues(topic) if topic else ()
    picked, route = None, None
    if base["place"] or (how == "id" and found.messages):
        try:
            picked = found.messages[0] if how == "id" and found.messages else await _at(visit, topic, base["place"])
            route = await path_of(visit, picked)
        except ClientError as error:
            problem = str(error)
    return {
        **base, "found": found, "rows": [row(message) for message in found.messages],
        "queues": [f"{queue.broker_name}/{queue.queue_id}" for queue in queues], "problem": problem,
        "picked": shown(picked, base["view"]) if picked is not None else None, "path_of": route,
    }  # fmt: skip


async def find(visit: Visit, topic: str, how: str) -> Found:
    """Returns what the URL asks for; ClientError says what is missing in it."""
    browser = Browser(visit.admin, visit.console.clock)
    only, value = visit.text("queue"), visit.text("value").strip()
    if how in ("newest", "tail"):
        until = visit.number("until", 0, 0, 2**62)
        return await browser.newest(topic, only, until or None)
    if how == "time":
        from_ms = visit.number("from", 0, 0, 2**62)
        return await browser.since(topic, from_ms or parse_time(visit.text("at"), visit.now_ms), only)
    if not value:
        return Found((), f"give the {how} to look for")
    if how == "offset":
        if not only:
            return Found((), "choose the queue that the offset is of")
        if not value.isdecimal():
            raise ClientError(f"offset {value[:40]!r}: a whole number is expected")
        return await browser.at(topic, only, int(value))
    if how == "key":
        return await browser.by_key(topic, value)
    if how == "id":
        return await browser.by_id(topic, value)
    return await browser.scan(topic, only, **({"tag": value} if how == "tag" else {"text": value}))


async def _at(visit: Visit, topic: str, place: str) -> ReceivedMessage:
    fits = PLACE.match(place)
    if fits is None:
        raise ClientError(f"pick={place[:60]!r}: broker/queue@offset is expected")
    return await Browser(visit.admin, visit.console.clock).one(topic, fits["queue"], int(fits["offset"]))


def body_of(message: ReceivedMessage) -> tuple[bytes, str]:
    """Returns the body, or the bytes as they are stored with why they can't be read."""
    try:
        return message.body, ""
    except TandemError as error:
        return message.stored.body, f"the body can't be decompressed: {error}"


async def raw_body(visit: Visit) -> bytes:
    """Returns the body of the message that the URL names."""
    return body_of(await _at(visit, visit.text("topic"), visit.text("pick")))[0]


def row(message: ReceivedMessage) -> dict[str, Any]:
    queue = message.queue
    return {
        "place": f"{queue.broker_name}/{queue.queue_id}@{message.queue_offset}", "stored_ms": message.store_timestamp,
        "queue": f"{queue.broker_name}/{queue.queue_id}", "offset": message.queue_offset, "tag": message.tags,
        "keys": " ".join(message.keys), "id": message.message_id, "size": len(message.stored.body),
        "start": bodies.summary(message.stored.body if message.stored.sys_flag & 1 else body_of(message)[0]),
    }  # fmt: skip


def shown(message: ReceivedMessage, how: str) -> dict[str, Any]:
    body, trouble = body_of(message)
    stored = message.stored
    return {
        **row(message), "body": bodies.view(body, "hex" if trouble else how), "trouble": trouble,
        "properties": dict(message.properties), "log": stored.physical_offset, "record": stored.size,
        "topic": stored.topic, "origin": message.topic, "born_ms": message.born_timestamp,
        "born_host": _host(stored.born_host), "store_host": _host(stored.store_host),
        "tries": message.reconsume_times, "offset_id": message.offset_message_id,
    }  # fmt: skip


def _host(raw: bytes) -> str:
    try:
        return f"{ipaddress.ip_address(raw[:-4])}:{int.from_bytes(raw[-4:], 'big')}"
    except ValueError:
        return "not known"


async def path_of(visit: Visit, message: ReceivedMessage) -> dict[str, Any]:
    """Returns how far a message has come: born, stored, copied, and for each group delivered, retried or dead."""
    stored = message.stored
    end = stored.physical_offset + stored.size
    group = _group(visit.snapshot, message.broker_name)
    if group is not None and (group.end is None or group.end < end):
        group = _group(await visit.link.watch.newer(), message.broker_name)  # the message is younger than the look
    members = group.members if group is not None else ()
    durable = [m.address for m in members if m.durable is not None and m.durable >= end]
    received = [m.address for m in members if m.received is not None and m.received >= end]
    readers: list[str] = []
    problem = ""
    try:
        readers = await visit.admin.groups_of_topic(stored.topic)
    except TandemError as error:
        problem = str(error)
    outcomes = await asyncio.gather(*(_outcome(visit, reader, message) for reader in readers[:GROUPS_MAX]))
    return {
        "born_ms": message.born_timestamp, "born_host": _host(stored.born_host), "stored_ms": message.store_timestamp,
        "broker": message.broker_name, "durable": durable, "received": received, "members": len(members),
        "outcomes": outcomes, "more": max(0, len(readers) - GROUPS_MAX), "problem": problem,
        "acked": sum(outcome["tone"] == "healthy" for outcome in outcomes),
    }  # fmt: skip


def _group(snapshot: Snapshot, name: str) -> Group | None:
    return next((group for group in snapshot.groups if group.name == name), None)


async def _outcome(visit: Visit, group: str, message: ReceivedMessage) -> dict[str, Any]:
    """Returns what became of a message in one group, by its offsets and its retry and dead-letter topics."""
    try:
        progress = await visit.admin.progress(group, message.stored.topic)
        queue = QueueRef(message.stored.topic, message.broker_name, message.queue_id)
        offset = next((lag.consumer_offset for lag in progress.queues if lag.queue == queue), None)
        dead = await _there(visit, DLQ_PREFIX + group, message.message_id)
        retried = await _there(visit, RETRY_PREFIX + group, message.message_id)
    except TandemError as error:
        return {"group": group, "tone": "unknown", "word": "not known", "told": str(error)}
    if dead is not None:
        return {"group": group, "tone": "danger", "word": "dead", "told": "a dead letter of the group"}
    if retried is not None:
        times = retried.reconsume_times
        return {"group": group, "tone": "catching-up", "word": f"retried {times} times", "told": "the retry topic"}
    if offset is None or offset < 0:
        return {"group": group, "tone": "unknown", "word": "never read here", "told": "the group has no offset"}
    if offset > message.queue_offset:
        return {"group": group, "tone": "healthy", "word": "acked", "told": f"the group's offset, {offset:,}"}
    return {"group": group, "tone": "absent", "word": "not yet", "told": f"the group's offset, {offset:,}"}


async def _there(visit: Visit, topic: str, message_id: str) -> ReceivedMessage | None:
    try:
        found = await visit.admin.messages_by_key(topic, message_id, count_max=8, unique=True)
    except TandemError:
        return None  # the group has no such topic
    return found[-1] if found else None


# Acts -----------------------------------------------------------------------------------------------------------------


async def send(visit: Visit) -> str:
    topic = visit.field("topic").strip()
    with acting(visit, "send a message", topic) as act:
        properties = {}
        for line in visit.field("properties").splitlines():
            if line.strip():
                name, sign, value = line.partition("=")
                if not (name.strip() and sign):
                    raise ClientError(f"property {line[:60]!r}: name=value is expected, one a line")
                properties[name.strip()] = value.strip()
        message = Message(
            topic=topic,
            body=visit.field("body").replace("\r\n", "\n").encode("utf-8", "replace"),
            tags=visit.field("tag").strip(),
            keys=tuple(visit.field("keys").split()),
            properties=properties,
            delay_level=visit.whole("delay", 0, 18) if visit.field("delay") else 0,
        )
        result = await (await visit.link.producer()).send(message)
        place = f"{result.queue.broker_name}/{result.queue.queue_id}@{result.queue_offset}"
        act.after, act.outcome = place, f"{result.status.name} {result.message_id}"
        act.ok = result.ok
    return visit.url("/messages", topic=topic, pick="" if message.delay_level else place, done=act.number)


async def resend(visit: Visit) -> str:
    """Sends a copy of a message to its topic: all its groups get it again."""
    topic, place = visit.field("topic"), visit.field("pick")
    with acting(visit, "send a message again", f"{topic} {place}") as act:
        old = await _at(visit, topic, place)
        properties = {name: value for name, value in old.properties.items() if name not in NOT_RESENT}
        target = old.topic if not old.topic.startswith((DLQ_PREFIX, RETRY_PREFIX)) else ""
        target = target or old.properties.get(names.DLQ_ORIGIN_TOPIC, "")
        if not target:
            raise ClientError(f"{place} does not say which topic it came from: resend it as a dead letter of its group")
        message = Message(
            topic=target, body=old.body, tags=old.tags, keys=old.keys, properties=properties, flag=old.stored.flag
        )
        result = await (await visit.link.producer()).send(message)
        again = f"{result.queue.broker_name}/{result.queue.queue_id}@{result.queue_offset}"
        act.before, act.after = place, again
        act.outcome, act.ok = f"{result.status.name} {result.message_id}", result.ok
    return visit.url("/messages", topic=target, pick=again, done=act.number)


# The API --------------------------------------------------------------------------------------------------------------


async def api_find(visit: Visit) -> Any:
    topic = visit.text("topic")
    found = await find(visit, topic, visit.choice("how", *HOWS))
    return {"messages": [row(m) for m in found.messages], "told": found.told, "problems": found.problems}


async def api_one(visit: Visit) -> Any:
    message = await _at(visit, visit.text("topic"), visit.text("pick"))
    found = shown(message, visit.choice("view", "text", "hex"))
    body = body_of(message)[0]
    text = body[: bodies.SHOWN_MAX].decode("utf-8", "replace")
    return {**found, "body": text, "bodySize": len(body), "path": await path_of(visit, message)}


async def api_send(visit: Visit) -> Any:
    return {"next": await send(visit), "act": visit.console.journal.newest()[0]}


PAGES = (Page("/messages", "messages.html", page),)
ACTS = (ActRoute("/act/messages/send", send), ActRoute("/act/messages/resend", resend))
ENDPOINTS = (
    Endpoint("GET", "/api/v1/messages", "Messages of a topic, newest first or as asked.", api_find,
             {"topic": "of which topic", "how": ", ".join(HOWS), "value": "what to look for", "queue": "broker/number",
              "at": "a time, for how=time", "until": "ms since 1970, for how=newest"}),
    Endpoint("GET", "/api/v1/message", "One message and its path.", api_one,
             {"topic": "its topic", "pick": "broker/queue@offset"}),
    Endpoint("POST", "/api/v1/messages", "Sends a message.", api_send,
             body={"topic": "to which topic", "body": "text", "tag": "", "keys": "separated by blanks",
                   "properties": "name=value, one a line", "delay": "level 1 to 18"}),
)  # fmt: skip
