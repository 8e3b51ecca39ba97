"""Tables of progress wait until the log they speak of is here; tables are told in parts where those are enough."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tandemq.broker.handlers.table_answers import table_for_slave
from tandemq.broker.pair.tables import BrokerTables, HeldTables
from tandemq.broker.pair.told_tables import Told
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.offsets import NOT_FOUND, OffsetTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.model.topic import DataVersion, SubscriptionGroupConfig, TopicConfig
from tandemq.replication.metadata import MARK, SINCE


def told(value: int, *, table: str = "offsets", is_part: bool = False, key: str = "T@g") -> Told:
    return Told(table, is_part, DataVersion(), {key: {0: value}})


def test_a_table_waits_for_its_position() -> None:
    held = HeldTables()
    held.hold(100, told(1))
    assert held.reached(99) == []
    assert held.reached(100) == [(100, told(1))]
    assert not held
    assert held.reached(200) == []


def test_a_slave_that_stays_behind_learns_the_oldest_and_keeps_the_newest() -> None:
    held = HeldTables()
    for position in range(100, 200):
        held.hold(position, told(position))
    held.hold(150, told(0, table="delay"))
    assert len(held) == 3
    assert held.reached(100) == [(100, told(100))]
    held.hold(300, told(300))
    assert held.reached(250) == [(199, told(199)), (150, told(0, table="delay"))]
    assert held.reached(300) == [(300, told(300))]


def test_of_several_that_are_true_the_newest_counts() -> None:
    held = HeldTables()
    held.hold(1, told(1))
    held.hold(2, told(2))
    assert held.reached(5) == [(2, told(2))]
    assert not held


def test_parts_that_wait_build_on_one_another() -> None:
    held = HeldTables()
    held.hold(1, told(1))
    held.hold(2, told(2, is_part=True))
    held.hold(3, told(3, is_part=True, key="T@h"))
    assert len(held) == 2
    assert held.reached(2) == [(1, told(1))]
    (after,) = held.reached(3)
    assert after == (3, Told("offsets", True, DataVersion(), {"T@g": {0: 2}, "T@h": {0: 3}}))


def test_what_is_dropped_never_comes() -> None:
    held = HeldTables()
    held.hold(1, told(1))
    held.hold(1, told(2, table="delay"))
    held.drop("offsets")
    assert held.reached(1) == [(1, told(2, table="delay"))]
    held.hold(2, told(2, table="delay"))
    held.clear()
    assert not held


class Node:
    """The tables of one broker, and how a slave asks for them."""

    def __init__(self) -> None:
        self.topics, self.groups, self.offsets = TopicTable(lambda: 1), GroupTable(lambda: 1), OffsetTable(lambda: 1)
        self.at = 0
        broker: Any = SimpleNamespace(topics=self.topics, groups=self.groups, offsets=self.offsets)
        self.tables = BrokerTables(broker, lambda: self.at)

    def follow(self, master: "Node", table: str, position: int | None = None) -> int:
        """Fetches a table from a master; returns how many entries came."""
        since = self.tables.held_to(table)
        assert since is not None
        source: Any = getattr(master, table)
        data = asyncio.run(table_for_slave(source, Command(0, {SINCE: since})))
        reply = decode_command(FrameReader().feed(data)[0])
        found = self.tables.read(table, bytes(reply.body), bool(since) and reply.ext.get(SINCE) == since)
        self.tables.take(found, position, reply.ext[MARK])
        return len(found.entries)


def many(groups: int = 300) -> Node:
    master = Node()
    for number in range(groups):
        master.offsets.commit(f"g{number}", "T", 0, number)
    return master


def test_a_commit_of_one_group_among_many_tells_one_entry() -> None:
    master, slave = many(), Node()
    assert slave.follow(master, "offsets") == 300
    for offset in range(1000, 1020):
        master.offsets.commit("g7", "T", 0, offset)
    assert slave.follow(master, "offsets") == 1
    assert slave.offsets.query("g7", "T", 0) == 1019
    assert slave.offsets.all() == master.offsets.all()
    assert slave.follow(master, "offsets") == 0


def test_what_is_gone_at_the_master_goes_at_its_slave() -> None:
    master, slave = many(3), Node()
    master.offsets.commit("g1", "T", 1, 5)
    slave.follow(master, "offsets")
    master.offsets.remove_group("g1")
    master.offsets.commit("g1", "T", 1, 6)
    assert slave.follow(master, "offsets") == 1
    assert slave.offsets.query("g1", "T", 0) == NOT_FOUND
    assert slave.offsets.query("g1", "T", 1) == 6
    master.offsets.remove_group("g1")
    slave.follow(master, "offsets")
    assert slave.offsets.all() == master.offsets.all()


def test_another_run_of_the_master_tells_everything() -> None:
    slave = Node()
    assert slave.follow(many(), "offsets") == 300
    assert slave.follow(many(), "offsets") == 300


def test_parts_wait_for_the_log_and_none_is_lost() -> None:
    master, slave = many(3), Node()
    slave.follow(master, "offsets", 0)
    for offset in range(10, 15):
        master.offsets.commit(f"g{offset % 3}", "T", 0, offset)
        assert slave.follow(master, "offsets", offset) == 1
    assert slave.offsets.query("g1", "T", 0) == 1
    slave.at = 10
    slave.tables.dispatched()
    assert slave.offsets.query("g1", "T", 0) == 10
    assert slave.offsets.query("g2", "T", 0) == 2
    slave.at = 14
    slave.tables.dispatched()
    assert slave.offsets.all() == master.offsets.all()
    master.offsets.commit("g0", "T", 0, 20)
    assert slave.follow(master, "offsets", 14) == 1


def test_a_part_that_is_true_at_once_comes_after_those_that_waited() -> None:
    master, slave = many(3), Node()
    slave.follow(master, "offsets", 0)
    master.offsets.commit("g1", "T", 0, 10)
    master.offsets.commit("g2", "T", 0, 10)
    slave.follow(master, "offsets", 5)
    master.offsets.commit("g2", "T", 0, 3)
    slave.at = 5
    slave.follow(master, "offsets", 5)
    assert slave.offsets.all() == master.offsets.all()


def test_what_was_held_and_never_became_true_is_asked_for_again() -> None:
    master, slave = many(3), Node()
    slave.follow(master, "offsets", 0)
    master.offsets.commit("g1", "T", 0, 10)
    slave.follow(master, "offsets", 5)
    slave.tables.settle(4)
    assert slave.follow(master, "offsets", 0) == 3
    assert slave.offsets.query("g1", "T", 0) == 10


def test_changes_of_another_hand_end_the_parts() -> None:
    master, slave = many(3), Node()
    slave.follow(master, "offsets")
    slave.offsets.clamp(lambda topic, queue: 1)
    assert slave.follow(master, "offsets") == 3
    assert slave.offsets.all() == master.offsets.all()


def test_commits_of_clients_at_the_slave_stay_until_the_master_has_them() -> None:
    master, slave = many(3), Node()
    slave.offsets.journal = {}
    slave.follow(master, "offsets")
    slave.offsets.commit("g1", "T", 0, 50)
    master.offsets.commit("g1", "T", 0, 40)
    assert slave.follow(master, "offsets") == 1
    assert slave.offsets.query("g1", "T", 0) == 50
    master.offsets.commit("g1", "T", 0, 60)
    slave.tables.delivered([("g1", "T", 0, 50)])  # it was ahead and took nothing
    assert slave.follow(master, "offsets") == 3
    assert slave.offsets.query("g1", "T", 0) == 60


def test_one_more_topic_and_one_more_group_tell_one_entry() -> None:
    master, slave = Node(), Node()
    for number in range(100):
        master.topics.put(TopicConfig(name=f"T{number}"))
        master.groups.put(SubscriptionGroupConfig(name=f"g{number}"))
    assert slave.follow(master, "topics") == 100
    assert slave.follow(master, "groups") >= 100
    master.topics.put(TopicConfig(name="more", read_queues=3))
    master.topics.delete("T7")
    master.groups.put(SubscriptionGroupConfig(name="more"))
    master.groups.set_forbidden("g1", "T1", 2)
    master.groups.delete("g2")
    assert slave.follow(master, "topics") == 2
    assert slave.follow(master, "groups") == 3
    assert dict(slave.topics.all()) == dict(master.topics.all())
    assert slave.topics.version == master.topics.version
    assert dict(slave.groups.all()) == dict(master.groups.all())
    assert slave.groups.forbidden("g1", "T1") == 2
    master.groups.set_forbidden("g1", "T1", 0)
    slave.follow(master, "groups")
    assert slave.groups.forbidden("g1", "T1") == 0


def test_a_topic_that_the_log_told_first_is_told_in_a_part_all_the_same() -> None:
    master, slave = Node(), Node()
    for number in range(10):
        master.topics.put(TopicConfig(name=f"T{number}"))
    slave.follow(master, "topics")
    master.topics.put(TopicConfig(name="new", read_queues=3, write_queues=3))
    slave.topics.adopt([("new", 0)])
    assert slave.follow(master, "topics") == 1
    assert dict(slave.topics.all()) == dict(master.topics.all())
    slave.topics.adopt([("unknown", 0)])  # the master has it no more: nothing tells, so the next time everything is
    master.topics.put(TopicConfig(name="other"))
    assert slave.follow(master, "topics") == 1
    assert slave.follow(master, "topics") == 12
    assert dict(slave.topics.all()) == dict(master.topics.all())


def test_what_a_rocketmq_master_delivered_counts_once_its_copies_are_here() -> None:
    """Else a slave that is promoted without them would skip messages that it has; and its own progress counts too, so
    the table is known as RocketMQ's."""
    loaded: list[tuple[Any, int | None]] = []
    schedule = SimpleNamespace(load=lambda found, position: loaded.append((found, position)))
    at = 0
    broker: Any = SimpleNamespace(delay_schedule=schedule, delay_file=SimpleNamespace(mark=lambda: None))
    tables = BrokerTables(broker, lambda: at)
    found = tables.read("delay", b'{"offsetTable":{"1":7}}')
    tables.take(found, 100, is_of_rocketmq=True)
    at = 99
    tables.dispatched()
    assert loaded == []
    at = 100
    tables.dispatched()
    assert loaded == [({"offsetTable": {"1": 7}}, None)]
