"""`tandemq send`: one message, the lines of stdin, files, or many made-up ones."""

import asyncio
import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemq.cli.failures import ERROR, FEWER_COPIES
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
from tandemq.cli.suggestions import complete_topic
from tandemq.client.message import SendResult
from tandemq.client.producer import Producer
from tandemq.clock import SystemClock
from tandemq.errors import ClientError, TandemError
from tandemq.model.ack_level import parse_level
from tandemq.model.message import Message

app = typer.Typer(help="Send messages.")

LISTED_MAX = 20
"""Up to this many results are listed one by one; more are summed up."""
READ_SIZE = 64 * 1024
LINES_AHEAD = 1024
"""Lines read from stdin that are not sent yet; beyond them the reading waits."""


@app.command()
def send(
    topic: Annotated[str, typer.Argument(help="Topic to send to.", autocompletion=complete_topic)],
    body: Annotated[
        str | None, typer.Argument(help="The message's text; without it every line of stdin is one.")
    ] = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", help="Send this file's bytes as one message; may be repeated.")
    ] = None,
    tag: Annotated[str, typer.Option("--tag", "-t", help="Tag of the messages.")] = "",
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Key to find it by; may be repeated.")] = None,
    prop: Annotated[list[str] | None, typer.Option("--property", "-p", help="name=value; may be repeated.")] = None,
    delay: Annotated[int, typer.Option(min=0, max=18, help="Delay level 1 (1 s) to 18 (2 h); 0: none.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Send the body this many times, or that many made-up bodies.")] = 1,
    size: Annotated[
        int, typer.Option(min=0, help="Bytes of a made-up body, which does not compress; 0: use BODY, --file or stdin.")
    ] = 0,
    copies: Annotated[
        str | None, typer.Option(help="Copies that must exist: a number, majority or all; 2:durable: two on disk.")
    ] = None,
    sharding_key: Annotated[str | None, typer.Option(help="Same key, same queue: keeps their order.")] = None,
    group: Annotated[str, typer.Option("--group", "-g", help="Producer group.")] = "tandemq-cli",
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one message with all its retries.")] = 3.0,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Send BODY, the lines of stdin, files, or --count made-up messages of --size bytes.

    Exit code 3: everything was stored, but with fewer copies than wanted; 1: something was not sent.
    """
    properties = parse_pairs(prop or (), "--property")
    if copies is not None:
        parse_level(copies)

    def message(text: bytes) -> Message:
        keys = tuple(key or ())
        return Message(topic=topic, body=text, tags=tag, keys=keys, properties=properties, delay_level=delay)

    bodies, total = _bodies(body, file or [], count, size)
    config = client_config(namesrv, send_timeout_ms=max(1, round(timeout * 1000)))
    sending = Sending(Producer(group, config=config), total, sharding_key=sharding_key, copies=copies)
    run(sending.run((message(text) async for text in bodies), as_they_come=total is None))
    sending.report(as_json)
    if sending.failures:
        raise typer.Exit(ERROR)
    if not all(result.ok for result in sending.results):
        raise typer.Exit(FEWER_COPIES)


# Bodies ---------------------------------------------------------------------------------------------------------------


def _bodies(body: str | None, files: list[Path], count: int, size: int) -> tuple[AsyncIterator[bytes], int | None]:
    """Returns the bodies, and how many there are if that is known."""
    given = [name for name, has in (("BODY", body is not None), ("--file", bool(files)), ("--size", size > 0)) if has]
    if len(given) > 1:
        raise ClientError(f"{' and '.join(given)} each say what to send: give one of them")
    if size:
        return _each(_made_up(size, number) for number in range(count)), count
    if files:
        contents = [_content(path) for path in files]
        return _each(text for text in contents for _ in range(count)), count * len(contents)
    if body is not None:
        return _each(body.encode() for _ in range(count)), count
    if sys.stdin.isatty():
        note("type messages, one a line; Ctrl-D ends")
    return _lines(), None


def _made_up(size: int, number: int) -> bytes:
    """Returns random bytes, which no compression makes smaller; long ones begin with their number."""
    head = b"%012d " % number if size >= 32 else b""
    return head + os.urandom(size - len(head))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ClientError(f"--file {path}: can't be read: {error.strerror}") from None


async def _each(bodies: Iterable[bytes]) -> AsyncIterator[bytes]:
    for body in bodies:
        yield body


async def _lines() -> AsyncIterator[bytes]:
    """Yields the lines of stdin as they come. A thread reads them: waiting for the next one must not stop the loop,
    on which sends have their deadlines. The thread is a daemon, so Ctrl-C need not wait for a line.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    room = threading.Semaphore(LINES_AHEAD)

    def read() -> None:
        # Not sys.stdin: the interpreter can't end while a thread holds its lock.
        with contextlib.suppress(RuntimeError), open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as raw:
            rest = b""
            while chunk := raw.read(READ_SIZE):
                *whole, rest = (rest + chunk).split(b"\n")
                put(whole)
            put([rest])
            loop.call_soon_threadsafe(lines.put_nowait, None)  # RuntimeError: the loop has ended before stdin

    def put(whole: list[bytes]) -> None:
        for line in whole:
            if body := line.rstrip(b"\r"):
                room.acquire()
                loop.call_soon_threadsafe(lines.put_nowait, body)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (body := await lines.get()) is not None:
        room.release()
        yield body


# Sending --------------------------------------------------------------------------------------------------------------


class Sending:
    """Sends are pipelined, so a slow answer does not hold up the next message; the outcome is collected here."""

    def __init__(self, producer: Producer, total: int | None, **options: Any) -> None:
        self._producer, self._total, self._options = producer, total, options
        self.results: list[SendResult] = []
        self.failures: list[str] = []
        self.seconds = 0.0

    async def run(self, messages: AsyncIterator[Message], *, as_they_come: bool) -> None:
        clock = SystemClock()
        async with self._producer as producer:
            started = clock.monotonic()
            with progress("sending", self._total) as advance:

                def done(future: "asyncio.Future[SendResult]") -> None:
                    advance(1)
                    if future.cancelled():
                        return
                    error = future.exception()
                    if error is not None:
                        self.failures.append(str(error))
                    else:
                        self.results.append(future.result())

                async for message in messages:
                    try:
                        (await producer.submit(message, **self._options)).add_done_callback(done)
                    except TandemError as error:
                        self.failures.append(str(error))
                        if not self.results and not as_they_come:
                            break  # nothing works: one sentence is enough
                await producer.flush()
                await asyncio.sleep(0)  # the last callbacks
            self.seconds = clock.monotonic() - started

    def report(self, as_json: bool) -> None:
        results, failures = self.results, self.failures
        statuses = Counter(result.status.value for result in results)
        rate = len(results) / self.seconds if self.seconds else 0.0
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
        if as_json:
            print_json(
                {
                    "sent": len(results),
                    "failed": len(failures),
                    "seconds": round(self.seconds, 3),
                    "perSecond": round(rate, 1),
                    "statuses": dict(statuses),
                    "results": rows if len(results) <= LISTED_MAX else [],
                    "errors": failures[:LISTED_MAX],
                }
            )
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
            print(f"{len(results)} messages in {self.seconds:.2f} s, {rate:.0f}/s: {counted}")
        for text in dict.fromkeys(failures[:3]):
            note(f"tandemq: {text}")
        if len(failures) > 3:
            note(f"tandemq: {len(failures)} messages could not be sent")
