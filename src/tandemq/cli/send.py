"""`tandemq send`: one message, the lines of stdin, or many made-up ones."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tandemq.cli.render import (
    DEFAULT_NAMESRV,
    Json,
    Namesrv,
    client_config,
    note,
    parse_pairs,
    print_json,
    progress,
    run,
    show,
)
from tandemq.client.message import SendResult
from tandemq.client.producer import Producer
from tandemq.clock import SystemClock
from tandemq.errors import ClientError, TandemError
from tandemq.model.message import Message

app = typer.Typer(help="Send messages.")

LISTED_MAX = 20
"""Up to this many results are listed one by one; more are summed up."""


@app.command()
def send(
    topic: Annotated[str, typer.Argument(help="Topic to send to.")],
    body: Annotated[
        str | None, typer.Argument(help="The message's text; without it every line of stdin is one.")
    ] = None,
    tag: Annotated[str, typer.Option("--tag", "-t", help="Tag of the messages.")] = "",
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Key to find it by; may be repeated.")] = None,
    prop: Annotated[list[str] | None, typer.Option("--property", "-p", help="name=value; may be repeated.")] = None,
    delay: Annotated[int, typer.Option(min=0, max=18, help="Delay level 1 (1 s) to 18 (2 h); 0: none.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Send the body this many times, or that many made-up bodies.")] = 1,
    size: Annotated[int, typer.Option(min=0, help="Bytes of a made-up body; 0: use BODY or stdin.")] = 0,
    copies: Annotated[
        str | None, typer.Option(help="Copies that must exist: a number, majority or all; 2:durable: two on disk.")
    ] = None,
    sharding_key: Annotated[str | None, typer.Option(help="Same key, same queue: keeps their order.")] = None,
    group: Annotated[str, typer.Option("--group", "-g", help="Producer group.")] = "tandemq-cli",
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one message with all its retries.")] = 3.0,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Send BODY, the lines of stdin, or --count made-up messages of --size bytes."""
    properties = parse_pairs(prop or (), "--property")

    def message(text: bytes) -> Message:
        keys = tuple(key or ())
        return Message(topic=topic, body=text, tags=tag, keys=keys, properties=properties, delay_level=delay)

    bodies, total = _bodies(body, count, size)
    work = _send_all(
        namesrv, group, timeout, (message(text) for text in bodies), total, sharding_key=sharding_key, copies=copies
    )
    results, failures, seconds = run(work)
    _report(results, failures, seconds, as_json)
    if failures:
        raise typer.Exit(1)


def _bodies(body: str | None, count: int, size: int) -> tuple[Iterator[bytes], int | None]:
    """(the bodies, how many if that is known)."""
    if size:
        if body is not None:
            raise ClientError("--size makes the body up: give either BODY or --size")
        return (b"%0*d" % (size, i) if size >= 12 else b"x" * size for i in range(count)), count
    if body is not None:
        return (body.encode() for _ in range(count)), count
    if sys.stdin.isatty():
        note("type messages, one a line; Ctrl-D ends")
    return (line.rstrip(b"\r\n") for line in sys.stdin.buffer if line.strip()), None


async def _send_all(
    namesrv: str, group: str, timeout: float, messages: Iterator[Message], total: int | None, **options: Any
) -> tuple[list[SendResult], list[str], float]:
    """(results, errors, seconds); sends are pipelined, so a slow answer does not hold up the next message."""
    results: list[SendResult] = []
    failures: list[str] = []
    clock = SystemClock()
    config = client_config(namesrv, send_timeout_ms=max(1, round(timeout * 1000)))
    async with Producer(group, config=config) as producer:
        started = clock.monotonic()
        with progress("sending", total) as advance:

            def done(future: "asyncio.Future[SendResult]") -> None:
                advance(1)
                error = future.exception()
                if error is not None:
                    failures.append(str(error))
                else:
                    results.append(future.result())

            for message in messages:
                try:
                    (await producer.submit(message, **options)).add_done_callback(done)
                except TandemError as error:
                    failures.append(str(error))
                    if not results:
                        break  # nothing works: one sentence is enough
            await producer.flush()
            await asyncio.sleep(0)  # the last callbacks
        return results, failures, clock.monotonic() - started


def _report(results: list[SendResult], failures: list[str], seconds: float, as_json: bool) -> None:
    statuses = Counter(result.status.value for result in results)
    rows = [
        {
            "status": result.status.value,
            "messageId": result.message_id,
            "broker": result.queue.broker_name,
            "queueId": result.queue.queue_id,
            "queueOffset": result.queue_offset,
            "offsetMessageId": result.offset_message_id,
            "remark": result.remark,
        }
        for result in results[:LISTED_MAX]
    ]
    summary = {
        "sent": len(results),
        "failed": len(failures),
        "seconds": round(seconds, 3),
        "perSecond": round(len(results) / seconds, 1) if seconds else 0.0,
        "statuses": dict(statuses),
    }
    if as_json:
        listed = rows if len(results) <= LISTED_MAX else []
        print_json({**summary, "results": listed, "errors": failures[:LISTED_MAX]})
        return
    if results and len(results) <= LISTED_MAX:
        headings = {
            "status": "STATUS",
            "messageId": "MESSAGE ID",
            "broker": "BROKER",
            "queueId": "QUEUE",
            "queueOffset": "OFFSET",
        }
        if any(result.remark for result in results):
            headings["remark"] = "BECAUSE"
        show(rows, headings, as_json=False)
    elif results:
        counted = ", ".join(f"{number} {status}" for status, number in statuses.items())
        print(f"{len(results)} messages in {seconds:.2f} s, {len(results) / seconds:.0f}/s: {counted}")
    for text in dict.fromkeys(failures[:3]):
        note(f"tandemq: {text}")
    if len(failures) > 3:
        note(f"tandemq: {len(failures)} messages could not be sent")
