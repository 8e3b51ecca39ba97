"""ReplicaNode: one role after another on one store, and what each leaves for the next."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tandemq.clock import SystemClock
from tandemq.model.ack_level import AckLevel
from tandemq.replication import replica_file
from tandemq.replication.acks import AckQueue
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.node import ReplicaNode
from tandemq.replication.node_callbacks import NodeCallbacks
from tandemq.sim.disk import CrashableDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.testing.waiting import until

ROOT = Path("/store")
HOST = "127.0.0.1"


class Node:
    def __init__(self) -> None:
        self.disk = CrashableDisk()
        self.disk.make_directory(ROOT)
        self.store = MessageStore.open(ROOT, StoreConfig(commit_log_segment_size=1 << 16), disk=self.disk)
        self.told: list[str] = []
        callbacks = NodeCallbacks(
            opened=lambda: self.told.append("opened"),
            closed=lambda reason, deposed: self.told.append("closed"),
            readable=lambda: None,
            recorded=lambda: self.told.append("recorded"),
        )
        self.node = ReplicaNode(
            self.store, ROOT, ReplicationConfig(reconnect_ms_max=20), AckQueue(), SystemClock(), callbacks,
            group="g", address="a:1", sync_flush=False, disk=self.disk,
        )  # fmt: skip

    async def reign(self) -> None:
        await self.node.be_master(HOST, 0, AckLevel(1), strict=True, ask=frozenset())

    async def seek(self) -> None:
        async def nobody() -> None:
            return None

        await self.node.be_slave(nobody)


def run(story: Callable[[Node], Awaitable[None]]) -> Node:
    one = Node()

    async def whole() -> None:
        await story(one)
        await one.node.leave_role()

    asyncio.run(whole())
    return one


def test_a_master_alone_opens_and_its_record_says_so_on_disk() -> None:
    async def story(one: Node) -> None:
        await one.reign()
        assert one.node.is_open
        assert one.node.ha_port > 0
        assert (one.node.status().role, one.node.phase) == ("master", "open")
        assert one.node.is_holder

    one = run(story)
    assert one.told.index("recorded") < one.told.index("opened")
    saved = replica_file.load(one.disk, ROOT)
    assert saved is not None
    assert saved.reigning


def test_a_clean_end_of_a_reign_needs_nobody_at_the_next_start() -> None:
    async def story(one: Node) -> None:
        await one.reign()
        await one.node.leave_role(clean=True)
        assert one.node.status().role == "none"
        assert not one.node.record.reigning

    run(story)


def test_a_former_master_seeks_and_shows_what_it_knew_to_be_confirmed() -> None:
    async def story(one: Node) -> None:
        await one.reign()
        one.store.append("T", 0, 0, 0, 1, bytes(8), 0, 0, b"body", b"")
        one.node.appended()
        confirmed = one.store.appended
        await one.seek()
        assert one.node.record.confirmed == one.node.confirmed == confirmed
        assert (one.node.status().role, one.node.is_open, one.node.is_following) == ("slave", False, False)
        await until(lambda: one.node.status().reason != "", "why there is no session")

    run(story)


def test_there_is_nothing_to_drain_without_a_reign() -> None:
    async def story(one: Node) -> None:
        await one.seek()
        await one.node.drained(0.0)

    run(story)


@pytest.mark.parametrize("port_taken", [False, True])
def test_a_slave_serves_observers_where_it_is_told_and_goes_on_where_it_can_not(port_taken: bool) -> None:
    async def story(one: Node) -> None:
        server = await asyncio.start_server(lambda reader, writer: None, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        if not port_taken:
            server.close()
            await server.wait_closed()

        async def nobody() -> None:
            return None

        await one.node.be_slave(nobody, host=HOST, port=port)
        assert (one.node.relay is None) == port_taken
        assert one.node.slave is not None
        server.close()

    run(story)
