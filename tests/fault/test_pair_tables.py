"""Topics, groups and offsets of a master that leaves: what was changed just before is with its slave."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tandemq.broker.addresses import free_port
from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.broker.new_message import NewMessage
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.metadata import PairCode
from tandemq.store.config import StoreConfig
from tandemq.testing.waiting import until

HOST = "127.0.0.1"
SECONDS = 30.0
TOPIC, GROUP = "TBW102", "readers"


def broker(root: Path, role: BrokerRole, master: str = "") -> Broker:
    return Broker(
        BrokerConfig(
            broker_id=0 if role is not BrokerRole.SLAVE else 1,
            role=role,
            broker_ip1=HOST,
            store_path_root_dir=str(root),
        ),
        StoreConfig(commit_log_segment_size=1 << 16, index_slots=64, index_entries=64),
        RemotingConfig(listen_port=free_port(HOST), bind_address=HOST),
        ReplicationConfig(reconnect_ms_max=50, ha_master_address=master),
    )


async def commit(client: RemotingClient, address: str, offset: int) -> None:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    reply = await client.invoke(address, Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext), 5)
    reply.raise_for_code(ResponseCode.SUCCESS)


async def leaving(directory: Path, leave: Callable[[RemotingClient, Broker, Broker], Awaitable[None]]) -> int:
    """The slave's offset after a commit at the master whose next act is to leave."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(RemotingClient(RemotingConfig()))
        master = await stack.enter_async_context(broker(directory / "m", BrokerRole.SYNC_MASTER))
        following = broker(directory / "s", BrokerRole.SLAVE, f"{HOST}:{master.ha_port}")
        slave = await stack.enter_async_context(following)
        for _ in range(3):  # an offset beyond its queue would not outlive a change of master
            message = NewMessage(
                topic=TOPIC, queue_id=0, body=b"", properties={}, born_timestamp=1, born_host=master.store_host
            )
            await master.writer.put(message)
        await commit(client, master.address, 1)
        await until(lambda: slave.offsets.query(GROUP, TOPIC, 0) == 1)
        await commit(client, master.address, 2)
        await leave(client, master, slave)
        return slave.offsets.query(GROUP, TOPIC, 0)


def test_an_offset_committed_just_before_a_clean_stop_is_with_the_slave(tmp_path: Path) -> None:
    assert asyncio.run(leaving(tmp_path, lambda client, master, slave: master.stop())) == 2


def test_an_offset_committed_just_before_a_promotion_is_with_the_new_master(tmp_path: Path) -> None:
    async def promote(client: RemotingClient, master: Broker, slave: Broker) -> None:
        reply = await client.invoke(slave.address, Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"}), 20)
        assert reply.code == ResponseCode.SUCCESS, reply.remark

    assert asyncio.run(leaving(tmp_path, promote)) == 2


@pytest.mark.timeout(60)
def test_a_slave_that_hangs_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    async def hang(client: RemotingClient, master: Broker, slave: Broker) -> None:
        pair = slave.replication
        await pair._core.follower.stop()  # type: ignore[attr-defined]
        await commit(client, master.address, 3)
        await master.stop()

    assert asyncio.run(leaving(tmp_path, hang)) in (1, 2)
