"""Brokers with a key on real sockets: they replicate, strangers don't get in the way, and nobody is followed without
one."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fault.test_pair_reasons import HOST, BrokerRole, broker, status
from tests.security.guarded import send

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.errors import ConfigError
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.hands import StoreHands
from tandemq.replication.slave import MasterPlace, SlaveShell
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk
from tandemq.store.config import StoreConfig
from tandemq.testing.waiting import until

KEY = "a key that nobody guesses"


def test_a_pair_with_a_key_replicates_while_strangers_crowd_the_port(tmp_path: Path) -> None:
    asyncio.run(_crowded(tmp_path))


async def _crowded(directory: Path) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(RemotingClient(RemotingConfig()))
        master = broker(directory / "master", BrokerRole.SYNC_MASTER, shared_key=KEY, batch_size_max=4096)
        await stack.enter_async_context(master)
        for number in range(80):
            _, stranger = await asyncio.open_connection(HOST, master.ha_port)
            stack.callback(stranger.close)
            if number % 2:
                refuse = ha.Refuse("higher-epoch", "step down", (1 << 63) - 1)
                stranger.write(ha.encode_control(refuse))
        slave = broker(
            directory / "slave", BrokerRole.SLAVE, ha_master_address=f"{HOST}:{master.ha_port}", shared_key=KEY
        )
        await stack.enter_async_context(slave)

        async def in_sync() -> bool:
            return any(one["in_sync"] for one in (await status(client, master))["replicas"])

        await until(in_sync, "the slave in sync")
        for number in range(20):
            reply = await client.invoke(master.address, send("orders", b"%d" % number * 500), 10)
            assert reply.code == 0, reply.remark
        assert slave.store.appended == master.store.appended > 0
        seen = await status(client, master)
        assert seen["writable"], seen


def test_history_in_bulk_is_sealed_and_arrives(tmp_path: Path) -> None:
    asyncio.run(_caught_up(tmp_path))


async def _caught_up(directory: Path) -> None:
    store = StoreConfig(commit_log_segment_size=8 << 20, index_enable=False)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(RemotingClient(RemotingConfig()))
        master = broker(directory / "master", BrokerRole.ASYNC_MASTER, store=store, shared_key=KEY)
        await stack.enter_async_context(master)
        for number in range(10):
            body = number.to_bytes(1, "big") * (1 << 20)
            assert (await client.invoke(master.address, send("orders", body), 10)).code == 0
        place = f"{HOST}:{master.ha_port}"
        slave = broker(directory / "slave", BrokerRole.SLAVE, store=store, ha_master_address=place, shared_key=KEY)
        await stack.enter_async_context(slave)
        await until(lambda: slave.store.appended == master.store.appended, "the slave has everything")
        end, segment = master.store.appended, 8 << 20
        for start in range(0, end, segment):
            size = min(segment, end - start)
            assert slave.store.slice(start, size) == master.store.slice(start, size)
        shell = master.replication.node.master  # type: ignore[attr-defined]
        assert shell._summing == {}
        assert any(place.size > ha.BULK_SIZE_MIN and place.fast_key for place in shell.state.streaming.digests)


def test_a_slave_with_a_key_never_connects_to_a_classic_master() -> None:
    asyncio.run(_not_followed())


async def _not_followed() -> None:
    events: list[str] = []
    nothing: Any = lambda *given: None  # noqa: E731
    with socket.create_server((HOST, 0)) as classic:
        classic.setblocking(False)

        async def find() -> MasterPlace:
            return MasterPlace(f"{HOST}:{classic.getsockname()[1]}", extended=False)

        state: Any = SimpleNamespace(disconnected=nothing)
        store: Any = None
        hands = StoreHands(store, CrashableDisk(), Path("/store"), ManualClock())
        shell = SlaveShell(
            lambda extended: state, hands, ManualClock(), find, reconnect_max=0.01, on_readable=nothing,
            on_saved=nothing, on_event=events.append, classic_peers=False,
        )  # fmt: skip
        await shell.start()
        await until(lambda: bool(events), "a reason")
        await shell.stop()
        assert events == [Reason.CLASSIC_REFUSED.value]
        with pytest.raises(BlockingIOError):
            classic.accept()


@pytest.mark.parametrize(
    ("key", "said", "taken"), [("", "", True), (KEY, "", False), (KEY, "true", True), ("", "False", False)]
)
def test_classic_peers_take_part_unless_there_is_a_key(key: str, said: str, taken: bool) -> None:
    assert ReplicationConfig(shared_key=key, classic_peers=said).takes_classic_peers == taken


def test_another_word_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="haClassicPeers='maybe': must be true, false or empty"):
        ReplicationConfig(classic_peers="maybe")
