"""`tandemq message`: one message by id, key or place."""

import base64
from typing import Annotated, Any

import typer

from tandemq.cli.render import DEFAULT_NAMESRV, Json, Namesrv, Raw, parse_time, print_bytes, show, show_one, with_admin
from tandemq.cli.suggestions import complete_topic
from tandemq.client.admin import Admin
from tandemq.client.message import ReceivedMessage
from tandemq.errors import ClientError
from tandemq.model.topic import QueueRef

app = typer.Typer(help="Find messages by id, key or place.", no_args_is_help=True)


def message_row(message: ReceivedMessage) -> dict[str, Any]:
    """Returns a message as JSON has it; a body that is no UTF-8 is given in base64 as `bodyBase64`."""
    row = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "bornMs": message.born_timestamp,
        "storedMs": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
        "size": len(message.body),
    }
    try:
        row["body"] = message.body.decode()
    except UnicodeDecodeError:
        row["bodyBase64"] = base64.b64encode(message.body).decode()
    return row


@app.command("id")
def by_id(
    message_id: Annotated[str, typer.Argument(help="The id that `send` printed, or an offset message id.")],
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="Topic of the message: finds it faster.", autocompletion=complete_topic),
    ] = None,
    raw: Raw = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Show the message with an id."""
    _show(with_admin(namesrv, lambda admin: admin.message_by_id(message_id, topic)), as_json, raw)


@app.command("key")
def by_key(
    topic: Annotated[str, typer.Argument(help="Topic of the messages.", autocompletion=complete_topic)],
    key: Annotated[str, typer.Argument(help="Key given by the producer.")],
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=1024, help="At most this many.")] = 64,
    since: Annotated[str | None, typer.Option(help="Stored at or after this time, or age (1h).")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """List the messages with a key, oldest first."""
    begin = parse_time(since) if since else 0
    found = with_admin(namesrv, lambda admin: admin.messages_by_key(topic, key, count_max=limit, begin_ms=begin))
    headings = {
        "messageId": "MESSAGE ID",
        "broker": "BROKER",
        "queueId": "QUEUE",
        "queueOffset": "OFFSET",
        "storedMs": "STORED",
        "tags": "TAGS",
        "size": "BYTES",
        "body": "BODY",
    }
    show((message_row(m) for m in found), headings, as_json=as_json, empty=f"no message of {topic} has key {key}")


@app.command("offset")
def by_offset(
    topic: Annotated[str, typer.Argument(help="Topic of the message.", autocompletion=complete_topic)],
    queue_id: Annotated[int, typer.Argument(min=0, help="Queue id.")],
    offset: Annotated[int, typer.Argument(min=0, help="Offset in the queue.")],
    broker: Annotated[
        str | None, typer.Option("--broker", "-b", help="Broker name, if several have the topic.")
    ] = None,
    raw: Raw = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Show the message at a place in a queue."""

    async def work(admin: Admin) -> ReceivedMessage:
        names = sorted({queue.broker_name for queue in await admin.queues(topic)})
        if broker is None and len(names) > 1:
            raise ClientError(f"{topic} is on {', '.join(names)}: say which one with --broker")
        return await admin.message_at(QueueRef(topic, broker or names[0], queue_id), offset)

    _show(with_admin(namesrv, work), as_json, raw)


def _show(message: ReceivedMessage, as_json: bool, raw: bool) -> None:
    if raw:
        print_bytes(message.body)
    else:
        show_one(message_row(message), as_json=as_json)
