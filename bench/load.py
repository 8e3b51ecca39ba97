"""Pipelined load for any RocketMQ-compatible broker, from a process of its own.

    python bench/load.py send --address 127.0.0.1:10911 --topic bench --connections 4 --window 64 --seconds 10
    python bench/load.py pull --address 127.0.0.1:10911 --topic bench --queues 4 --seconds 10

`send`: SEND_MESSAGE_V2 with `window` requests in flight per connection; messages/s, p50, p99, p99.9, other codes.
`pull`: one connection reads all queues from their first offset, one pull in flight per queue; MB/s and messages/s.

Requests are built from a template and answers are read with as little parsing as possible: the generator must cost
less than what it measures. `--json` prints one object instead of a line for people.
"""

import argparse
import asyncio
import json
import struct
import sys
import time
from array import array
from typing import Any

import uvloop

from tandemq.codec.command import Command, decode_command, encode_request
from tandemq.codec.frame import FrameReader
from tandemq.codec.send_header import SendHeader, send_ext

_LENGTH = struct.Struct(">I")
_OPAQUE_BASE = 1_000_000_000
"""Ten digits at any time, so that the frame's size never changes."""
_OPAQUE_MARK = b'"opaque":'


def send_template(topic: str, queue_id: int, size: int, group: str) -> list[bytes]:
    """A send's frame, split where the request's number goes: as its opaque, and as the end of its unique key."""
    unique_key = f"7F00000100002A139F5504{_OPAQUE_BASE}"
    header = SendHeader(
        producerGroup=group,
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=8,
        queueId=queue_id,
        sysFlag=0,
        bornTimestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=f"UNIQ_KEY\x01{unique_key}\x02WAIT\x01true\x02",
    )
    body = bytes(i * 31 % 251 for i in range(size))
    command = Command(310, send_ext(header, short=True), body, opaque=_OPAQUE_BASE, language="JAVA")
    return encode_request(command).split(b"%d" % _OPAQUE_BASE)


class Sender(asyncio.Protocol):
    """One connection with a constant number of sends in flight."""

    def __init__(self, template: list[bytes], window: int, latencies: "array[float]") -> None:
        self._template = template
        self._window = window
        self._latencies = latencies
        self._sent_at: dict[int, float] = {}
        self._next = _OPAQUE_BASE
        self._rest = b""
        self.done = 0
        self.codes: dict[int, int] = {}
        self.stopping = False
        self.finished = asyncio.get_running_loop().create_future()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send(self._window)

    def _send(self, count: int) -> None:
        now = time.perf_counter()
        parts = []
        for opaque in range(self._next, self._next + count):
            self._sent_at[opaque] = now
            parts.append((b"%d" % opaque).join(self._template))
        self._next += count
        self._transport.write(b"".join(parts))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._rest:
            data = self._rest + data
        position, stop, answered = 0, len(data), 0
        while stop - position >= 8:
            end = position + 4 + _LENGTH.unpack_from(data, position)[0]
            if end > stop:
                break
            at = data.index(_OPAQUE_MARK, position, end) + len(_OPAQUE_MARK)
            self._latencies.append(now - self._sent_at.pop(int(data[at : at + 10])))
            if not data.startswith(b'{"code":0,', position + 8):
                command = decode_command(FrameReader().feed(data[position:end])[0])
                self.codes[command.code] = self.codes.get(command.code, 0) + 1
            answered += 1
            position = end
        self._rest = data[position:]
        self.done += answered
        if not self.stopping:
            self._send(answered)
        elif not self._sent_at and not self.finished.done():
            self.finished.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_exception(error or ConnectionResetError("the broker closed the connection"))


async def send(options: argparse.Namespace) -> dict[str, Any]:
    host, _, port = options.address.rpartition(":")
    loop = asyncio.get_running_loop()
    latencies: array[float] = array("d")
    senders = []
    for number in range(options.connections):
        template = send_template(options.topic, number % options.queues, options.size, "GID_load")
        _, sender = await loop.create_connection(
            lambda t=template: Sender(t, options.window, latencies), host, int(port)
        )
        senders.append(sender)
    await asyncio.sleep(options.warmup)
    before, skipped, start = sum(s.done for s in senders), len(latencies), time.perf_counter()
    await asyncio.wait([s.finished for s in senders], timeout=options.seconds, return_when=asyncio.FIRST_EXCEPTION)
    elapsed = time.perf_counter() - start
    done = sum(s.done for s in senders) - before
    for sender in senders:
        sender.stopping = True
    await asyncio.wait_for(asyncio.gather(*(s.finished for s in senders)), 30)
    ordered = sorted(latencies[skipped:])
    codes: dict[int, int] = {}
    for sender in senders:
        for code, count in sender.codes.items():
            codes[code] = codes.get(code, 0) + count
    return {
        "what": "send",
        "total": sum(s.done for s in senders),
        "messages_per_second": round(done / elapsed),
        "mb_per_second": round(done / elapsed * options.size / 1e6, 1),
        "p50_us": round(percentile(ordered, 0.5) * 1e6),
        "p99_us": round(percentile(ordered, 0.99) * 1e6),
        "p999_us": round(percentile(ordered, 0.999) * 1e6),
        "in_flight": options.connections * options.window,
        "other_codes": codes,
    }


class Puller(asyncio.Protocol):
    """Reads every queue of a topic from the start, one pull in flight per queue."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._frames = FrameReader(64 * 1024 * 1024)
        self._transport: Any = None
        self.bytes = self.messages = self.pulls = 0
        self.offsets = dict.fromkeys(range(options.queues), 0)
        self.at_end: set[int] = set()
        self.finished = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        for queue_id in self.offsets:
            self._pull(queue_id)

    def _pull(self, queue_id: int) -> None:
        options = self._options
        ext = {
            "consumerGroup": "GID_load",
            "topic": options.topic,
            "queueId": str(queue_id),
            "queueOffset": str(self.offsets[queue_id]),
            "maxMsgNums": str(options.batch),
            "sysFlag": "4" if not options.wait else "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
            "maxMsgBytes": str(options.batch_bytes),
        }
        self._transport.write(encode_request(Command(11, ext, opaque=queue_id)))

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            answer = decode_command(frame)
            queue_id = answer.opaque
            self.pulls += 1
            if answer.code not in (0, 19, 20, 21):
                if not self.finished.done():
                    self.finished.set_exception(RuntimeError(f"pull answered code {answer.code}: {answer.remark}"))
                return
            following = int(answer.ext["nextBeginOffset"])
            if answer.code == 0:
                self.bytes += len(answer.body)
                self.messages += following - self.offsets[queue_id]
            elif answer.code == 19 and not self._options.wait:
                self.at_end.add(queue_id)
                if len(self.at_end) == len(self.offsets) and not self.finished.done():
                    self.finished.set_result(None)
                continue
            self.offsets[queue_id] = following
            self._pull(queue_id)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_exception(error or ConnectionResetError("the broker closed the connection"))


async def pull(options: argparse.Namespace) -> dict[str, Any]:
    host, _, port = options.address.rpartition(":")
    start = time.perf_counter()
    transport, puller = await asyncio.get_running_loop().create_connection(lambda: Puller(options), host, int(port))
    finished, _ = await asyncio.wait([puller.finished], timeout=options.seconds)
    elapsed = time.perf_counter() - start
    if finished:
        puller.finished.result()
    transport.abort()
    return {
        "what": "pull",
        "mb_per_second": round(puller.bytes / elapsed / 1e6, 1),
        "messages_per_second": round(puller.messages / elapsed),
        "messages": puller.messages,
        "pulls": puller.pulls,
        "seconds": round(elapsed, 3),
    }


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("send", "pull"))
    parser.add_argument("--address", required=True, help="host:port of a broker")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds of load before measuring (send)")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window", type=int, default=64, help="sends in flight per connection")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a message body")
    parser.add_argument("--batch", type=int, default=1024, help="messages asked for by a pull")
    parser.add_argument("--batch-bytes", type=int, default=4 * 1024 * 1024, help="maxMsgBytes of a pull")
    parser.add_argument("--wait", action="store_true", help="pull: long-poll at the end of a queue instead of stopping")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


def main() -> None:
    options = arguments(sys.argv[1:])
    result = uvloop.run(send(options) if options.what == "send" else pull(options))
    if options.json:
        print(json.dumps(result))
    else:
        print("  ".join(f"{name}={value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
