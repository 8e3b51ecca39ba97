"""A name server and broker in one that answers every send and pull at once and stores nothing: what a driver costs by
itself. A pull gets the same 32 messages of 1 KiB until its queue's QUEUED are through.

python bench/instant.py              # prints its address, serves until its input ends
python bench/instant.py --copied     # answers a send when another process has its bytes too, as a pair that stores
                                     # nothing; for one sender at a time
"""

import asyncio
import json
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop

from tandemq.formats.record import encode_record

GET_ROUTE = 105
SENDS = (10, 310)
PULL, MAX_OFFSET, MIN_OFFSET = 11, 30, 31
PULLED = 32
QUEUED = 3000 * PULLED
ONEWAY = 2
STORED = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0"}
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
RECORDS = PULLED * encode_record(
    topic="bench", queue_id=0, queue_offset=0, physical_offset=0, born_timestamp=1, born_host=HOST, store_timestamp=1,
    store_host=HOST, body=bytes(1024), properties=b"UNIQ_KEY\x017F00000104D218B4AAC2000000000000\x02WAIT\x01true",
)  # fmt: skip


class Instant(asyncio.Protocol):
    """One connection."""

    def __init__(self, copier: "Copier | None" = None) -> None:
        self._received = b""
        self._copier = copier

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 8:
            size, header_size = struct.unpack_from(">II", self._received)
            if len(self._received) < 4 + size:
                return
            frame, self._received = self._received[: 4 + size], self._received[4 + size :]
            self._answer(json.loads(frame[8 : 8 + (header_size & 0xFFFFFF)]), frame)

    def _answer(self, asked: dict[str, Any], frame: bytes) -> None:
        if asked["flag"] & ONEWAY:
            return
        answer = {"code": 0, "flag": 1, "language": "JAVA", "opaque": asked["opaque"], "version": 395}
        fields, body = self._content(asked["code"], asked.get("extFields") or {})
        header = json.dumps({**answer, "extFields": fields, "serializeTypeCurrentRPC": "JSON"}).encode()
        reply = struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body
        if self._copier is not None and asked["code"] in SENDS:
            self._copier.copy(frame, lambda: self._transport.write(reply))
        else:
            self._transport.write(reply)

    def _content(self, code: int, asked: dict[str, str]) -> tuple[dict[str, str], bytes]:
        if code in SENDS:
            return STORED, b""
        if code == PULL:
            after = int(asked["queueOffset"]) + PULLED
            bounds = {"minOffset": "0", "maxOffset": str(QUEUED), "suggestWhichBrokerId": "0"}
            return {**bounds, "nextBeginOffset": str(after)}, RECORDS
        if code in (MIN_OFFSET, MAX_OFFSET):
            return {"offset": str(QUEUED if code == MAX_OFFSET else 0)}, b""
        return {}, self._route() if code == GET_ROUTE else b""

    def _route(self) -> bytes:
        address = "{}:{}".format(*self._transport.get_extra_info("sockname"))
        queues = {"brokerName": "instant", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0}
        broker = {"brokerName": "instant", "cluster": "instant", "brokerAddrs": {"0": address}}
        return json.dumps({"brokerDatas": [broker], "queueDatas": [queues], "filterServerTable": {}}).encode()


class Copier(asyncio.Protocol):
    """The link to the process that has the copy."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def copy(self, frame: bytes, done: Callable[[], None]) -> None:
        self._done = done
        self._transport.write(frame)

    def data_received(self, data: bytes) -> None:
        self._done()


class Copy(asyncio.Protocol):
    """The process that has the copy: a byte back for what came."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"1")


async def main() -> None:
    loop = asyncio.get_running_loop()
    kind = Copy if "--copy" in sys.argv else Instant
    copier = None
    if "--copied" in sys.argv:
        pipe = asyncio.subprocess.PIPE
        other = await asyncio.create_subprocess_exec(sys.executable, __file__, "--copy", stdin=pipe, stdout=pipe)
        assert other.stdout is not None
        host, port = (await other.stdout.readline()).decode().split(":")
        _, copier = await loop.create_connection(Copier, host, int(port))
    server = await loop.create_server(kind if copier is None else partial(Instant, copier), "127.0.0.1", 0)
    print("{}:{}".format(*server.sockets[0].getsockname()), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
