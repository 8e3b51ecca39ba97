"""A name server and broker in one that answers every send at once and stores nothing: what a driver costs by itself.

python bench/instant.py      # prints its address, serves until its input ends
"""

import asyncio
import json
import struct
import sys

import uvloop

GET_ROUTE = 105
SENDS = (10, 310)
ONEWAY = 2
STORED = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0"}


class Instant(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 8:
            size, header_size = struct.unpack_from(">II", self._received)
            if len(self._received) < 4 + size:
                return
            self._answer(json.loads(self._received[8 : 8 + (header_size & 0xFFFFFF)]))
            self._received = self._received[4 + size :]

    def _answer(self, asked: dict[str, int]) -> None:
        if asked["flag"] & ONEWAY:
            return
        answer = {"code": 0, "flag": 1, "language": "JAVA", "opaque": asked["opaque"], "version": 395}
        fields = {"extFields": STORED} if asked["code"] in SENDS else {}
        header = json.dumps({**answer, **fields, "serializeTypeCurrentRPC": "JSON"}).encode()
        body = self._route() if asked["code"] == GET_ROUTE else b""
        self._transport.write(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)

    def _route(self) -> bytes:
        address = "{}:{}".format(*self._transport.get_extra_info("sockname"))
        queues = {"brokerName": "instant", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0}
        broker = {"brokerName": "instant", "cluster": "instant", "brokerAddrs": {"0": address}}
        return json.dumps({"brokerDatas": [broker], "queueDatas": [queues], "filterServerTable": {}}).encode()


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Instant, "127.0.0.1", 0)
    print("{}:{}".format(*server.sockets[0].getsockname()), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
