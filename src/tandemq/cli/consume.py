"""`tandemq consume`: prints the messages of a topic, those there are or also those that come."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import typer

from tandemq.cli.message import message_row
from tandemq.cli.render import (
    DEFAULT_NAMESRV,
    Json,
    Namesrv,
    Raw,
    client_config,
    note,
    parse_time,
    print_bytes,
    print_json_line,
    run,
    stop_event,
    time_text,
)
from tandemq.cli.suggestions import complete_topic
from tandemq.client.config import ConsumeFrom
from tandemq.client.message import ReceivedMessage
from tandemq.client.pull_consumer import PullConsumer
from tandemq.client.subscription import ALL, SQL92, TAG
from tandemq.errors import NoRoute
from tandemq.model.topic import QueueRef
from tandemq.printable import printable, printable_lines

app = typer.Typer(help="Print messages.")

ANONYMOUS_GROUP = "tandemq-cli-consume"
POLL_MS = 500
POLL_COUNT = 32


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.", autocompletion=complete_topic)],
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="Read as this group and commit; with --follow it shares the queues with its members."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new messages until Ctrl-C.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", help="earliest, latest, a time or an age (15m). Default: earliest; with --group its offset."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=0, help="End after this many messages; 0: no limit.")] = 0,
    tags: Annotated[str, typer.Option("--tags", "-t", help="Only these tags: A || B.")] = ALL,
    sql: Annotated[str | None, typer.Option(help="Only messages whose properties match this SQL92 condition.")] = None,
    raw: Raw = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Print a topic's messages: those that are there, and with --follow also those that come."""
    expression, kind = (sql, SQL92) if sql is not None else (tags, TAG)
    run(_consume(namesrv, topic, group, follow, start, limit, expression, kind, as_json, raw))


async def _consume(
    namesrv: str,
    topic: str,
    group: str | None,
    follow: bool,
    start: str | None,
    limit: int,
    expression: str,
    kind: str,
    as_json: bool,
    raw: bool,
) -> None:
    stop = stop_event()
    config = client_config(namesrv, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer = PullConsumer(group or ANONYMOUS_GROUP, config=config, auto_commit=group is not None)
    joins = group is not None and follow and start is None
    if joins:
        consumer.subscribe(topic, expression, kind)
    async with consumer:
        queues = await consumer.queues(topic)
        if not queues:
            raise NoRoute(f"no name server knows topic {topic!r}; `tandemq topic list` shows those there are")
        ends: dict[QueueRef, int] = {}
        if not joins:
            ends = {queue: (await consumer.range(queue))[1] for queue in queues}
            await consumer.assign(queues, expression, kind)
            await _seek(consumer, queues, start or ("" if group else "earliest"))
            ends = {queue: end for queue, end in ends.items() if consumer.position(queue) < end}
        printed = 0
        async for message in _messages(consumer, stop, follow, ends, limit):
            _print(message, as_json, raw)
            printed += 1
        if not printed and not as_json:
            note(f"no messages in {topic}{'' if follow else '; --follow waits for new ones'}")


async def _seek(consumer: PullConsumer, queues: tuple[QueueRef, ...], start: str) -> None:
    if not start:
        return
    moment = None if start in ("earliest", "latest") else parse_time(start)
    for queue in queues:
        if moment is not None:
            await consumer.seek_to_time(queue, moment)
        elif start == "latest":
            await consumer.seek_to_end(queue)
        else:
            await consumer.seek_to_begin(queue)


async def _messages(
    consumer: PullConsumer, stop: asyncio.Event, follow: bool, ends: dict[QueueRef, int], limit: int
) -> AsyncIterator[ReceivedMessage]:
    """Yields messages until Ctrl-C, up to `limit`, or until every queue is read as far as it went at the start."""
    given = 0
    while not stop.is_set() and (follow or ends) and (not limit or given < limit):
        # Never more than wanted: what is polled counts as consumed.
        for message in await consumer.poll(POLL_MS, min(POLL_COUNT, limit - given) if limit else POLL_COUNT):
            if follow or message.queue_offset < ends.get(message.queue, 0):
                given += 1
                yield message
        # A filter may leave nothing at the end of a queue: what counts is how far it was examined.
        ends = {queue: end for queue, end in ends.items() if consumer.examined(queue) < end}


def _print(message: ReceivedMessage, as_json: bool, raw: bool = False) -> None:
    if raw:
        print_bytes(message.body)
        return
    if as_json:
        print_json_line(message_row(message))
        return
    where = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
    labels = " ".join(part for part in (message.tags and f"[{message.tags}]", ",".join(message.keys)) if part)
    text = printable_lines(message.body.decode("utf-8", "replace"))
    labels = printable(labels)
    print(f"{time_text(message.store_timestamp)} {where} {labels + ' ' if labels else ''}{text}", flush=True)
