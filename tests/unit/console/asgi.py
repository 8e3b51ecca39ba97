"""Calls the application without a socket: one request in, one answer out."""

import asyncio
from typing import Any

from tandemq.client.config import ClientConfig
from tandemq.console.app import Console
from tandemq.console.snapshot import Snapshot

FAR_MS = 2**52
"""A snapshot of the far future is always fresh: nothing is asked of the network."""


def make_console(*, refused: bool = False, **snapshot: Any) -> Console:
    console = Console(ClientConfig(namesrv="127.0.0.1:1"))
    console.links.open.watch.snapshot = Snapshot(
        FAR_MS, number=1, refusal="access refused: no AccessKey given" if refused else "", **snapshot
    )
    return console


class Answer:
    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.headers = {name.decode(): value.decode() for name, value in headers}
        self.body = body.decode()


async def request(
    console: Console, method: str, path: str, *, headers: dict[str, str] | None = None, body: bytes = b"",
    peer: str = "127.0.0.1",
) -> Answer:  # fmt: skip
    found = {"host": "127.0.0.1:8088", **(headers or {})}
    target, _, query = path.partition("?")
    scope = {
        "type": "http", "method": method, "path": target, "raw_path": target.encode(), "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in found.items()], "client": (peer, 1),
        "scheme": "http", "server": ("127.0.0.1", 8088), "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    sent: list[Any] = []
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return given.pop() if given else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await console.app(scope, receive, send)
    start = sent[0]
    return Answer(start["status"], start["headers"], b"".join(m.get("body", b"") for m in sent[1:]))


def ask(console: Console, method: str, path: str, **options: Any) -> Answer:
    return asyncio.run(request(console, method, path, **options))
