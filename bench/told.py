"""What one change of a large table costs a master and its slave: told as the part that changed, or whole as before."""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from bench.frame import Benchmark, Figure, Run, Side
from tandemq.broker.handlers.table_answers import table_for_slave
from tandemq.broker.pair.tables import BrokerTables
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.codec import bodies, fastjson
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.model.topic import TopicConfig
from tandemq.replication.metadata import MARK, SINCE

RUNNER = asyncio.Runner()
FETCHES = 200
COMMITS_EACH = 4
"""20 commits a second are told together in fifths of a second."""


class Node:
    """The tables of one broker."""

    def __init__(self) -> None:
        self.topics, self.groups, self.offsets = TopicTable(lambda: 1), GroupTable(lambda: 1), OffsetTable(lambda: 1)
        broker: Any = SimpleNamespace(topics=self.topics, groups=self.groups, offsets=self.offsets)
        self.tables = BrokerTables(broker, lambda: 1 << 60)


def _pass_on(master: Node, slave: Node, table: str, whole: Callable[[], bytes] | None) -> tuple[float, float]:
    """One fetch of a slave; returns the seconds of processor time at the master and at the slave."""
    began = time.thread_time()
    if whole is not None:
        body, mark, is_part = whole(), "", False
    else:
        since = slave.tables.held_to(table) or ""
        answer = RUNNER.run(table_for_slave(getattr(master, table), Command(0, {SINCE: since})))
        reply = decode_command(FrameReader(len(answer) + 1).feed(answer)[0])
        body, mark, is_part = bytes(reply.body), reply.ext[MARK], bool(since) and reply.ext.get(SINCE) == since
    told_at = time.thread_time()
    slave.tables.take(slave.tables.read(table, body, is_part), 0, mark)
    return told_at - began, time.thread_time() - told_at


def _commits(count: int, in_parts: bool, run: Run) -> Mapping[str, float]:
    master, slave = Node(), Node()
    count = run.count(count, 10)
    for number in range(count):
        for queue in range(4):
            master.offsets.commit(f"g{number}", "T", queue, number)
    whole = None if in_parts else lambda: fastjson.dumps_unquoted(master.offsets.snapshot())
    _pass_on(master, slave, "offsets", whole)
    gc.freeze()  # as a broker does after its start
    spent = [0.0, 0.0]
    fetches = FETCHES if in_parts else 5
    for number in range(fetches):
        began = time.thread_time()
        for commit in range(COMMITS_EACH):
            master.offsets.commit("g7", "T", commit, 1000 + number)
        spent[0] += time.thread_time() - began
        for node, seconds in enumerate(_pass_on(master, slave, "offsets", whole)):
            spent[node] += seconds
    assert slave.offsets.query("g7", "T", 0) == 1000 + fetches - 1
    return {name: spent[node] / fetches / COMMITS_EACH * 1000 for node, name in enumerate(("master", "slave"))}


def _topics(count: int, in_parts: bool, run: Run) -> Mapping[str, float]:
    master, slave = Node(), Node()
    count = run.count(count, 10)
    master.topics.topics_max = count + FETCHES
    master.topics.put_all(TopicConfig(name=f"T{number}") for number in range(count))

    def whole() -> bytes:
        return fastjson.dumps(bodies.topic_table_json(master.topics.all().values(), master.topics.version))

    chosen = None if in_parts else whole
    _pass_on(master, slave, "topics", chosen)
    gc.freeze()  # as a broker does after its start
    spent = [0.0, 0.0]
    rounds = FETCHES if in_parts else 3
    for number in range(rounds):
        master.topics.put(TopicConfig(name=f"more{number}"))
        for node, seconds in enumerate(_pass_on(master, slave, "topics", chosen)):
            spent[node] += seconds
    assert len(slave.topics) == len(master.topics)
    return {name: spent[node] / rounds * 1000 for node, name in enumerate(("master", "slave"))}


def _sides(measure: Callable[[int, bool, Run], Mapping[str, float]], large: int, small: int) -> dict[str, Side]:
    return {
        "ours": partial(measure, large, True),
        f"of {small}": partial(measure, small, True),
        "whole": partial(measure, large, False),
    }


BENCHMARKS = {
    "commits": Benchmark(
        what="20 commits a second of one group among 10,000: what one costs, against one among 10; and told whole.",
        figures={
            "master": Figure(
                "ms", "less", goal_ratio=1.2, what="processor time of a commit, its part of a fetch included"
            ),
            "slave": Figure("ms", "less", goal_ratio=1.2, what="processor time of a commit at the slave"),
        },
        sides=_sides(_commits, 10_000, 10),
        rounds=5,
    ),
    "topics": Benchmark(
        what="One more topic at 50,000: what it costs to tell the slave, against one at 10; and told whole.",
        figures={
            "master": Figure("ms", "less", goal=5, what="processor time to add and to tell it"),
            "slave": Figure("ms", "less", goal=5, what="processor time to take it over"),
        },
        sides=_sides(_topics, 50_000, 10),
        rounds=3,
    ),
}
