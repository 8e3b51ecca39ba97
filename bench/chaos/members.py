"""Members of the groups: listeners that work, dawdle, raise and get cancelled, and say what they do.

    python -m bench.chaos.members '{"kind": "ordered", ...}'

runs one in a process of its own, which can be killed; it prints what happens as lines of JSON.
"""

import asyncio
import itertools
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from tandemq.client import (
    Action,
    ClientConfig,
    ConsumeFrom,
    MessageModel,
    PullConsumer,
    PushConsumer,
    QueueRef,
    ReceivedMessage,
    stop_signals,
)

TOPICS = {"concurrent": "chaos-c", "ordered": "chaos-o", "broadcast": "chaos-b", "pull": "chaos-p", "booked": "chaos-t"}
CLOSE_S = 20.0

Event = tuple[object, ...]
Emit = Callable[[Event], None]


@dataclass(frozen=True)
class Plan:
    """One member. `stream` is the group's, but for broadcasting, where every member is a stream of its own."""

    name: str
    kind: str
    stream: str
    namesrv: str
    offset_dir: str
    seed: int
    plain: bool = False
    """Whether the listener is a plain function."""

    def config(self) -> ClientConfig:
        return ClientConfig(
            namesrv=self.namesrv,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            persist_interval_ms=1000,
            suspend_ms=200,
            offset_dir=self.offset_dir,
            instance_name=self.stream if self.kind == "broadcast" else "",
        )


class Told(logging.Handler):
    """Tells what the client logs about a message or a queue: why something comes again, where nothing was disturbed."""

    def __init__(self, emit: Emit) -> None:
        super().__init__(logging.INFO)
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, ReceivedMessage):
                self._emit(("s", argument.body.decode().rstrip(), record.getMessage(), time.monotonic()))
            elif isinstance(argument, QueueRef):
                self._emit(("s", queue_name(argument), record.getMessage(), time.monotonic()))


def queue_name(queue: QueueRef) -> str:
    """Returns a queue's name in the ledger."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


class Member:
    """Runs a plan until it is told to stop."""

    def __init__(self, plan: Plan, emit: Emit) -> None:
        self.plan = plan
        self._emit = emit
        self._numbers = itertools.count()
        self._chance = random.Random(plan.seed)

    async def run(self, stop: asyncio.Event) -> None:
        await (self._pulling(stop) if self.plan.kind == "pull" else self._pushed(stop))

    async def _pushed(self, stop: asyncio.Event) -> None:
        plan = self.plan
        consumer = PushConsumer(
            f"chaos-{plan.kind}",
            self._plain if plan.plain else self._coroutine,
            config=plan.config(),
            ordered=plan.kind == "ordered",
            model=MessageModel.BROADCASTING if plan.kind == "broadcast" else MessageModel.CLUSTERING,
        )
        consumer.subscribe(TOPICS[plan.kind])
        await consumer.start()
        try:
            await stop.wait()
        finally:
            await consumer.close(timeout=CLOSE_S)

    async def _pulling(self, stop: asyncio.Event) -> None:
        consumer = PullConsumer("chaos-pull", config=self.plan.config())
        consumer.subscribe(TOPICS["pull"])
        async with consumer:
            while not stop.is_set():
                for message in await consumer.poll(500, 16):
                    self._end(self._begin(message), True)

    def _begin(self, message: ReceivedMessage) -> int:
        number = next(self._numbers)
        plan = self.plan
        queue = queue_name(message.queue)
        body = message.body.decode().rstrip()
        self._emit(("b", plan.name, number, plan.stream, body, queue, message.queue_offset, time.monotonic()))
        return number

    def _end(self, number: int, done: bool) -> None:
        self._emit(("e", self.plan.name, number, done, time.monotonic()))

    async def _coroutine(self, messages: Sequence[ReceivedMessage]) -> Action | None:
        number = self._begin(messages[0])
        done = False
        try:
            what = self._chance.random()
            if what < 0.02:
                await asyncio.sleep(self._chance.uniform(0.2, 2.0))
            elif what < 0.3:
                await asyncio.sleep(self._chance.uniform(0.0, 0.02))
            if self.plan.kind != "broadcast":
                self._misbehave()
            done = True
        finally:
            self._end(number, done)
        return None

    def _plain(self, messages: Sequence[ReceivedMessage]) -> Action | None:
        number = self._begin(messages[0])
        done = False
        try:
            if self._chance.random() < 0.02:
                time.sleep(self._chance.uniform(0.2, 2.0))
            if self.plan.kind != "broadcast":
                self._misbehave(plain=True)
            done = True
        finally:
            self._end(number, done)
        return None

    def _misbehave(self, plain: bool = False) -> None:
        """Fails now and then, in every way that a listener can."""
        what = self._chance.random()
        if what < 0.005:
            raise ConnectionError("the database is away")
        if what < 0.008:
            raise asyncio.CancelledError
        if what < 0.01:
            sys.exit(3)
        if what < 0.012:
            raise StopIteration
        if what < 0.014:
            task = None if plain else asyncio.current_task()
            if task is not None:
                task.cancel()
            raise TimeoutError("of the listener's own")


async def _main(plan: Plan) -> None:
    def emit(event: Event) -> None:
        os.write(1, json.dumps(event).encode() + b"\n")  # in one piece: threads say something too

    logging.getLogger("tandemq.client").addHandler(Told(emit))
    async with stop_signals() as stop:
        await Member(plan, emit).run(stop)


def command(plan: Plan) -> list[str]:
    """Returns the command line of a process that runs a plan."""
    return [sys.executable, "-m", "bench.chaos.members", json.dumps(asdict(plan))]


if __name__ == "__main__":
    logging.basicConfig(level="INFO", stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(_main(Plan(**json.loads(sys.argv[1]))))
