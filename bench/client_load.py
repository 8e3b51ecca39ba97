"""The Python client as a user's program would use it, in a process of its own; prints one JSON object.

    python bench/client_load.py send NAMESRV TOPIC COUNT SIZE WINDOW
    python bench/client_load.py send-one NAMESRV TOPIC COUNT SIZE
    python bench/client_load.py batch NAMESRV TOPIC COUNT SIZE MESSAGES
    python bench/client_load.py consume NAMESRV TOPIC COUNT MESSAGES

`send`: `submit` with WINDOW messages in flight. `send-one`: `send`, one after the other; latencies. `batch`: that many
messages a call of `send_batch`. `consume`: a push consumer with a coroutine as listener, MESSAGES a call, from the
first message to the last; what starting and rebalancing take is not counted.
"""

import asyncio
import json
import sys
import time
import uuid
from array import array
from collections.abc import Sequence
from typing import Any

import uvloop

from tandemq.client import ClientConfig, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

BATCHES_IN_FLIGHT = 4


def _body(size: int) -> bytes:
    return bytes(97 + i % 26 for i in range(size))


async def send(namesrv: str, topic: str, count: int, size: int, window: int) -> dict[str, Any]:
    config = ClientConfig(namesrv=namesrv, in_flight_max=window)
    body = _body(size)
    async with Producer("GID_bench", config=config) as producer:
        for part in (count // 5, count):  # the first one warms up
            began = time.perf_counter()
            failed = 0

            def ended(future: "asyncio.Future[Any]") -> None:
                nonlocal failed
                failed += future.exception() is not None or not future.result().ok

            for _ in range(part):
                (await producer.submit(Message(topic=topic, body=body))).add_done_callback(ended)
            await producer.flush()
            await asyncio.sleep(0)
            seconds = time.perf_counter() - began
    return {"count": count, "failed": failed, "per_s": count / seconds}


async def send_one(namesrv: str, topic: str, count: int, size: int) -> dict[str, Any]:
    body = _body(size)
    async with Producer("GID_bench", config=ClientConfig(namesrv=namesrv)) as producer:
        for part in (count // 5, count):
            latencies: array[float] = array("d")
            failed = 0
            for _ in range(part):
                began = time.perf_counter()
                failed += not (await producer.send(Message(topic=topic, body=body))).ok
                latencies.append(time.perf_counter() - began)
    ordered = sorted(latencies)
    at = lambda q: round(ordered[min(len(ordered) - 1, int(q * len(ordered)))] * 1e6)  # noqa: E731
    return {"count": count, "failed": failed, "p50_us": at(0.5), "p99_us": at(0.99)}


async def batch(namesrv: str, topic: str, count: int, size: int, messages: int) -> dict[str, Any]:
    body = _body(size)
    failed = 0

    async def some(producer: Producer, calls: int) -> None:
        nonlocal failed
        for _ in range(calls):
            results = await producer.send_batch([Message(topic=topic, body=body) for _ in range(messages)])
            failed += sum(not result.ok for result in results)

    async with Producer("GID_bench", config=ClientConfig(namesrv=namesrv)) as producer:
        calls = max(1, count // messages // BATCHES_IN_FLIGHT)
        await some(producer, max(1, calls // 5))
        began = time.perf_counter()
        await asyncio.gather(*(some(producer, calls) for _ in range(BATCHES_IN_FLIGHT)))
        seconds = time.perf_counter() - began
    return {"count": count, "failed": failed, "per_s": calls * messages * BATCHES_IN_FLIGHT / seconds}


async def consume(namesrv: str, topic: str, count: int, messages: int) -> dict[str, Any]:
    config = ClientConfig(namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, consume_batch_size=messages)
    seen = 0
    began = ended = 0.0
    complete = asyncio.Event()

    async def listener(given: Sequence[ReceivedMessage]) -> None:
        nonlocal seen, began, ended
        began = began or time.perf_counter()
        seen += len(given)
        if seen >= count and not ended:
            ended = time.perf_counter()
            complete.set()

    consumer = PushConsumer(f"GID_{uuid.uuid4().hex[:12]}", listener, config=config)
    consumer.subscribe(topic)
    async with consumer:
        await complete.wait()
    return {"messages": seen, "per_s": count / (ended - began)}


WHAT = {"send": send, "send-one": send_one, "batch": batch, "consume": consume}


def main() -> None:
    what, namesrv, topic, *numbers = sys.argv[1:]
    uvloop.install()
    print(json.dumps(asyncio.run(WHAT[what](namesrv, topic, *map(int, numbers)))))  # type: ignore[operator]


if __name__ == "__main__":
    main()
