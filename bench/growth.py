"""What grows with tables that an operation does not touch: processor time and counted work, large against small.

No sockets and no peers: the parts themselves, so that a growing cost shows before the network hides it.
"""

import asyncio
import gc
import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.frame import Benchmark, Figure, Run, Side
from tandemq.broker.handlers.clients import ClientHandlers
from tandemq.broker.long_polling import ParkedPull, ParkedPulls
from tandemq.broker.services.half_ledger import HalfLedger
from tandemq.broker.services.timers import TimerService
from tandemq.broker.warm_imports import load_arrays
from tandemq.broker.writer import MessageWriter
from tandemq.cli.garbage import LongLived
from tandemq.clock import SystemClock
from tandemq.codec.command import Command
from tandemq.formats.log_mark import TopicDeleted
from tandemq.model.ack_level import AckLevel
from tandemq.model.topic import TIMER_TOPIC
from tandemq.replication.acks import AckQueue
from tandemq.store.config import StoreConfig
from tandemq.store.disk import FileDisk
from tandemq.store.message_store import MessageStore
from tandemq.testing.broker_parts import BrokerParts, FakeConnection
from tandemq.testing.waiting import until

HOST = bytes([127, 0, 0, 1, 0, 0, 0, 1])
QUEUES_PER_TOPIC = 8


class UnsyncedDisk(FileDisk):
    """Syncs nothing: that is done in a thread and is the disk's time, not the loop's."""

    def sync_file(self, path: Path) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


def _queues(count: int, run: Run) -> Mapping[str, float]:
    """Messages spread over so many queues; their entries go into their files, slice by slice; a topic is deleted."""
    count = max(QUEUES_PER_TOPIC, int(count * run.scale))
    calls: deque[Callable[[], None]] = deque()
    config = StoreConfig(flush_views_interval_ms=3_600_000, commit_log_segment_size=64 << 20)
    directory = run.directory / f"{count}-{run.round}"
    store = MessageStore.open(directory, config, post=calls.append, disk=UnsyncedDisk())
    store.start()
    figures: dict[str, float] = {}
    messages = run.count(50_000, 100)
    collector = LongLived()
    collector.begin()  # as a broker's command does
    for what, wanted in (("first", count), ("again", messages)):
        began = time.thread_time()
        for number in range(wanted):
            queue = number % count
            _put(store, f"T{queue // QUEUES_PER_TOPIC}", queue % QUEUES_PER_TOPIC)
            if number % 64 == 63:
                store.dispatch()
        while store.dispatch():
            pass
        figures["send"] = (time.thread_time() - began) / wanted * 1e6
        figures["pull"] = _pulls(store, count, wanted)
        longest, total = _turns(store, calls)
        figures[what], figures["write"] = longest * 1000, total / wanted * 1e6
        while store._flusher.views_busy:
            time.sleep(0.01)
    for queue in range(count):
        _put(store, "deleted", queue)
    while store.dispatch():
        pass
    _turns(store, calls)
    while store._flusher.views_busy:
        time.sleep(0.01)
    began = time.thread_time()
    store.append_mark(TopicDeleted("deleted"))
    appended = time.thread_time()
    store.dispatch()
    figures["delete"] = max(appended - began, time.thread_time() - appended) * 1000
    while store.dispatch():
        pass
    store.close()
    collector.end()
    began = time.process_time()
    store = MessageStore.open(directory, config, disk=UnsyncedDisk())
    figures["start"] = (time.process_time() - began) * 1000
    store.abandon()
    shutil.rmtree(directory)
    return figures


def _pulls(store: MessageStore, count: int, wanted: int) -> float:
    """Reads the newest message of queue after queue, as consumers do that keep up; returns microseconds for each."""
    began = time.thread_time()
    for number in range(wanted):
        queue = number % count
        topic, queue_id = f"T{queue // QUEUES_PER_TOPIC}", queue % QUEUES_PER_TOPIC
        newest = store.reader.queue_range(topic, queue_id)[1] - 1
        assert store.reader.get(topic, queue_id, newest, 1, 4096).count
    return (time.thread_time() - began) / wanted * 1e6


def _put(store: MessageStore, topic: str, queue_id: int) -> None:
    store.append(topic, queue_id, 0, 0, 1, HOST, 0, 0, b"x" * 100, b"")


def _turns(store: MessageStore, calls: "deque[Callable[[], None]]") -> tuple[float, float]:
    """Hands the views over; returns the longest turn and all of them together."""
    views, longest, total = store._views, 0.0, 0.0
    turn: Callable[[], None] = views.hand_over
    while True:
        began = time.thread_time()
        turn()
        taken = time.thread_time() - began
        longest, total = max(longest, taken), total + taken
        if not views._slicing:
            return longest, total
        while not calls:
            time.sleep(0.0001)
        turn = calls.popleft()


def _joins(count: int, run: Run) -> Mapping[str, float]:
    count = max(2, int(count * run.scale))

    async def joined() -> Mapping[str, float]:
        parts = BrokerParts()
        handlers = ClientHandlers(parts.topics, parts.groups, parts.members, parts.live, parts.clock)
        links = [FakeConnection() for _ in range(count)]
        sent = 0

        def send(_: bytes) -> None:
            nonlocal sent
            sent += 1

        began = time.thread_time()
        for number, link in enumerate(links):
            link.send = send  # type: ignore[method-assign]
            body: dict[str, Any] = {
                "clientID": f"c{number}",
                "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}],
            }
            handlers.heartbeat(link, Command(34, body=json.dumps(body).encode()))  # type: ignore[arg-type]
            if number % 50 == 49:
                await asyncio.sleep(0)
        await until(lambda: not handlers._notices._is_armed, "every notice")
        return {"join": (time.thread_time() - began) / count * 1e6, "notices": sent / count}

    return asyncio.run(joined())


def _parked(count: int, run: Run) -> Mapping[str, float]:
    count = max(10, int(count * run.scale))
    parked: ParkedPulls[None] = ParkedPulls(count)
    for number in range(count):
        parked.park(ParkedPull(("T", 0), number, 30.0, None))
    began = time.thread_time()
    for number in reversed(range(count)):
        parked.drop_owner(number)
    return {"closed": (time.thread_time() - began) / count * 1e6}


def _transactions(count: int, run: Run) -> Mapping[str, float]:
    count = max(10, int(count * run.scale))
    ledger = HalfLedger()
    began = time.thread_time()
    for half in reversed(range(count)):
        ledger.answered(half)
        ledger.op_read(count - half, [half])
    for half in range(count):
        assert ledger.is_decided(half)
        ledger.settle(half)
    return {"op": (time.thread_time() - began) / count * 1e6}


def _timers(count: int, run: Run) -> Mapping[str, float]:
    """A broker's timers after a start: so many wait, a hundred of them, all over, became due while it was down."""
    count = max(200, int(count * run.scale))
    directory = run.directory / f"timers-{count}-{run.round}"
    config = StoreConfig(commit_log_segment_size=64 << 20, flush_views_interval_ms=3_600_000)
    store = MessageStore.open(directory, config, disk=UnsyncedDisk())
    now, due = SystemClock().wall_ms(), 0
    for number in range(count):
        is_due = number % (count // 100) == 0
        due += is_due
        out = now - 1000 if is_due else now + 3_600_000 + number * 7919 % 10_000_000
        properties = b"UNIQ_KEY\x017F00000100002A13%016d\x02TIMER_DELIVER_MS\x01%d\x02TIMER_OUT_MS\x01%d\x02" % (
            number, out, out
        )  # fmt: skip
        properties += b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
        store.append(TIMER_TOPIC, 0, 0, 0, 1, HOST, 0, 0, b"x" * 100, properties)
        if number % 64 == 63:
            store.dispatch()
    store.close()
    gc.collect()
    return asyncio.run(_timers_started(directory, config, count, due))


async def _timers_started(directory: Path, config: StoreConfig, count: int, due: int) -> Mapping[str, float]:
    store, clock, loop = (
        MessageStore.open(directory, config, disk=UnsyncedDisk()),
        SystemClock(),
        asyncio.get_running_loop(),
    )
    writer = MessageWriter(
        store, AckQueue(), clock, loop, level=AckLevel(1), sync_flush=False, flush_timeout_ms=5000,
        copies_timeout_ms=3000, pending_max=1000, is_awaited=lambda: False,
    )  # fmt: skip
    service = TimerService(store, writer, clock, store_host=HOST)
    began = loop.time()
    service.start()
    longest, delivered, turns = 0.0, 0.0, time.thread_time()
    while service.waiting < count - due or service.delivered < due:
        await asyncio.sleep(0)
        longest, turns = max(longest, time.thread_time() - turns), time.thread_time()
        if not delivered and service.delivered >= due:
            delivered = loop.time() - began
    taken = loop.time() - began
    await service.stop()
    await until(lambda: store.dispatched == store.appended, "what was delivered to be dispatched")
    store.abandon()
    shutil.rmtree(directory)
    return {"delivered": (delivered or taken) * 1000, "known": taken * 1000, "longest": longest * 1000}


def _put_off(together: int, run: Run) -> Mapping[str, float]:
    """One sender, one message at a time; what its sends leave to do is done after so many of them, as on a timer."""
    load_arrays()  # a broker does that after its start

    async def sent() -> Mapping[str, float]:
        directory = run.directory / f"put-off-{together}-{run.round}"
        store = MessageStore.open(directory, StoreConfig(commit_log_segment_size=64 << 20), disk=UnsyncedDisk())
        loop, clock = asyncio.get_running_loop(), SystemClock()
        writer = MessageWriter(
            store, AckQueue(), clock, loop, level=AckLevel(1), sync_flush=False, flush_timeout_ms=5000,
            copies_timeout_ms=3000, pending_max=1000, is_awaited=lambda: False,
        )  # fmt: skip
        taken: list[float] = []
        do_later = writer._do_later

        def timed(size: int) -> None:
            began = time.thread_time()
            do_later(size)
            taken.append(time.thread_time() - began)

        writer._do_later = timed  # type: ignore[method-assign]
        gc.collect()
        gc.disable()
        body = b"x" * 1024
        for number in range(run.count(20_000, 200)):
            store.append("T", 0, 0, 0, 1, HOST, 0, 0, body, b"UNIQ_KEY\x017F00000100002A13%016d\x02" % number)
            if number % together == together - 1:
                writer.schedule_dispatch()
                while writer._later is not None:  # noqa: ASYNC110  # turns of the loop are what is counted
                    await asyncio.sleep(0)
        gc.enable()
        store.abandon()
        taken.sort()
        return {"typical": taken[len(taken) // 2] * 1e6, "long": taken[len(taken) * 99 // 100] * 1e6}

    return asyncio.run(sent())


def _sides(measure: Callable[[int, Run], Mapping[str, float]], large: int, small: int) -> dict[str, Side]:
    return {"ours": partial(measure, large), f"{small}": partial(measure, small)}


def _many_queues(count: int, turn_ms: float, rounds: int) -> Benchmark:
    return Benchmark(
        what=f"Messages spread over {count:,} queues against 8, all queues on their way into files, a topic that goes.",
        figures={
            "send": Figure("µs/msg", "less", goal_ratio=1.5, what="append and dispatch, processor time"),
            "write": Figure(
                "µs/entry", "less", what="one entry for each queue into its file; once a minute where there are many"
            ),
            "pull": Figure("µs/msg", "less", goal_ratio=1.5, what="a read of the newest message, queue after queue"),
            "first": Figure("ms", "less", goal=turn_ms, what="longest turn while the first entries make their files"),
            "again": Figure("ms", "less", goal=turn_ms, what="longest turn while more entries are written"),
            "delete": Figure("ms", "less", goal=turn_ms, what="longest turn while a topic with as many queues goes"),
            "start": Figure("ms", "less", goal=2000, what="opening the store after an orderly stop, processor time"),
        },
        sides=_sides(_queues, count, 8),
        rounds=rounds,
    )


BENCHMARKS = {
    "timers": Benchmark(
        what="A start with 1,000,000 timers that wait, 100 of them due, against 1,000; their log is in memory.",
        figures={
            "delivered": Figure("ms", "less", goal=2000, what="until all that were due are delivered"),
            "known": Figure("ms", "less", what="until the times of all are known"),
            "longest": Figure("ms", "less", goal=20, what="longest turn of the loop meanwhile, processor time"),
        },
        sides=_sides(_timers, 1_000_000, 1000),
        rounds=3,
    ),
    "queues": _many_queues(10_000, 20, 3),
    "queues-50000": _many_queues(50_000, 50, 1),
    "put-off": Benchmark(
        what="What the messages of a lone sender leave to do, done after each, against all of 5 ms together as before.",
        figures={
            "typical": Figure("µs", "less", what="processor time in one go, which a send may have to wait for"),
            "long": Figure("µs", "less", what="likewise, 99th percentile"),
        },
        sides={"ours": partial(_put_off, 1), "5 ms": partial(_put_off, 100)},
        rounds=3,
    ),
    "joins": Benchmark(
        what="1,000 clients join one group, against 10.",
        figures={
            "join": Figure("µs", "less", what="processor time of a join, notices included"),
            "notices": Figure("per join", "less", goal=10, what="notices sent; one per member and change would be 500"),
        },
        sides=_sides(_joins, 1000, 10),
        rounds=3,
    ),
    "parked": Benchmark(
        what="10,000 pulls wait for one queue and their connections close, newest first, against 100.",
        figures={"closed": Figure("µs", "less", goal_ratio=2.0, what="processor time of a closed connection")},
        sides=_sides(_parked, 10_000, 100),
        rounds=3,
    ),
    "transactions": Benchmark(
        what="The books of 60,000 decided transactions in one check, against 1,000.",
        figures={"op": Figure("µs", "less", goal=30, what="processor time of an op record")},
        sides=_sides(_transactions, 60_000, 1000),
        rounds=3,
    ),
}
