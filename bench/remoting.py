"""The remoting server alone: sends decoded and answered as a broker would, nothing stored. What a broker can't exceed.

    ./run bench remoting            or: python bench/remoting.py [--seconds 5] [--connections 4] [--window 64]

The server runs in this process on one core, `bench/load.py` in another. Besides messages/s there is the server's own
CPU time per message, which does not depend on what else the machine is doing. The ceiling is a server that cuts frames
and answers with the same bytes every time.
"""

import argparse
import asyncio
import json
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from bench.frame import Benchmark, Figure, Run
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import encode_response
from tandemq.codec.send_header import SendHeader
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection
from tandemq.remoting.server import RemotingServer

_LOAD = Path(__file__).with_name("load.py")


class Echo:
    """Answers a send with what a broker answers, without a store."""

    def __init__(self) -> None:
        self.sends = 0

    def send(self, connection: Connection, opaque: int, flag: int, header: SendHeader, body: memoryview) -> bytes:
        self.sends += 1
        ext = {
            "msgId": "7F00000100002A9F0000000000000000",
            "queueId": str(header.queueId),
            "queueOffset": str(self.sends),
            "transactionId": "7F00000100002A139F5504B2D2A40001",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        return encode_response(opaque, 0, None, ext)


@asynccontextmanager
async def ours() -> AsyncIterator[tuple[int, Callable[[], int]]]:
    """(port, sends so far) of our server."""
    echo = Echo()
    config = RemotingConfig(listen_port=0, bind_address="127.0.0.1")
    async with RemotingServer(config, {}, send_handlers={RequestCode.SEND_MESSAGE_V2: echo.send}) as server:
        yield server.port, lambda: echo.sends


class Bare(asyncio.Protocol):
    """Cuts frames, finds the opaque, answers: no decoding, no limits."""

    sends = 0
    _head, _, _tail = encode_response(1_234_567_890, 0, None, {"msgId": "0" * 32, "queueId": "0"}).partition(
        b"1234567890"
    )

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        position, answers = 0, []
        while len(data) - position >= 8:
            end = position + 4 + struct.unpack_from(">I", data, position)[0]
            if end > len(data):
                break
            at = data.index(b'"opaque":', position) + 9
            answers += (self._head, data[at : at + 10], self._tail)
            position = end
        self._rest = data[position:]
        Bare.sends += len(answers) // 3
        self._transport.write(b"".join(answers))


@asynccontextmanager
async def bare() -> AsyncIterator[tuple[int, Callable[[], int]]]:
    Bare.sends = 0
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], lambda: Bare.sends
    finally:
        server.close()


Server = Callable[[], AbstractAsyncContextManager[tuple[int, Callable[[], int]]]]


async def measure(server: Server, seconds: float, connections: int, window: int) -> dict[str, Any]:
    async with server() as (port, sends):
        cpu = time.process_time()
        load = await asyncio.create_subprocess_exec(
            sys.executable, str(_LOAD), "send", "--json", "--address", f"127.0.0.1:{port}", "--seconds", str(seconds),
            "--connections", str(connections), "--window", str(window), stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await load.communicate()
        cpu = time.process_time() - cpu
        return {**json.loads(output), "server_cpu_us_per_message": round(cpu / sends() * 1e6, 2)}


def _side(server: Server) -> Callable[[Run], dict[str, float]]:
    def ask(run: Run) -> dict[str, float]:
        result = uvloop.run(measure(server, max(0.5, 5 * run.scale), 4, 64))
        return {
            "messages": result["messages_per_second"],
            "p50": result["p50_us"],
            "p99": result["p99_us"],
            "cpu": result["server_cpu_us_per_message"],
        }

    return ask


BENCHMARKS = {
    "send": Benchmark(
        what="Sends of 1 KiB decoded and answered, nothing stored; 256 in flight over 4 connections",
        figures={
            "messages": Figure("messages/s", goal=50_000, what="one server process on one core"),
            "p50": Figure("µs", "less"),
            "p99": Figure("µs", "less"),
            "cpu": Figure("µs/message", "less", what="CPU time of the server process"),
        },
        sides={"ours": _side(ours), "ceiling": _side(bare)},
        notes="The ceiling is a 30-line asyncio protocol that decodes nothing; generator and server share two cores.",
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    options = parser.parse_args()
    result = uvloop.run(measure(ours, options.seconds, options.connections, options.window))
    print("  ".join(f"{name}={value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
