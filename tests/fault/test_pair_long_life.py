"""A pair whose log loses its beginning, and whose topics come and go: what a slave and a promoted slave then show."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tandemq.broker.addresses import free_port
from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.broker.new_message import NewMessage
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.errors import DiskFull, RemotingError
from tandemq.formats.log_mark import LOG_MARK_TOPIC
from tandemq.model.ack_level import AckLevel
from tandemq.model.message import encode_properties
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication import replica_file
from tandemq.replication.acks import PutStatus
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.metadata import PairCode
from tandemq.sim.clock import ShiftedClock
from tandemq.store.config import StoreConfig
from tandemq.store.disk import Disk
from tandemq.testing.pair import RealPair
from tandemq.testing.waiting import until

HOST = "127.0.0.1"
HOST_BYTES = bytes((127, 0, 0, 1)) + (1).to_bytes(4, "big")
TOPIC, GROUP = "orders", "readers"
HOUR_MS = 3_600_000


@dataclass(slots=True)
class Nodes:
    """A master with small files and a clock that can be set, and slaves for it."""

    directory: Path
    client: RemotingClient
    clock: ShiftedClock
    master: Broker

    @asynccontextmanager
    async def slave(self, name: str = "s") -> AsyncIterator[Broker]:
        following = broker(self.directory / name, BrokerRole.SLAVE, self.clock, f"{HOST}:{self.master.ha_port}")
        async with following:
            await until(lambda: self._is_in_sync(following))
            yield following

    def _is_in_sync(self, slave: Broker) -> bool:
        status = self.master.replication.status()
        replicas = status.replicas if status is not None else ()
        return has_all(slave, self.master) and any(replica.in_sync and not replica.error for replica in replicas)

    async def send(self, count: int, queue_id: int = 0, copies: int = 2) -> None:
        """Sends messages of 500 bytes."""
        for number in range(count):
            message = NewMessage(
                topic=TOPIC, queue_id=queue_id, body=b"%d" % number + bytes(500), properties={},
                born_timestamp=1, born_host=HOST_BYTES,
            )  # fmt: skip
            result = await self.master.writer.put(message, AckLevel(copies))
            assert result.status is PutStatus.PUT_OK, result

    async def expire(self) -> None:
        """Lets all files but the newest expire."""
        await until(lambda: self.master.store.flushed == self.master.store.dispatched == self.master.store.appended)
        before = self.master.store.first_offset
        self.clock.shift_ms += 100 * HOUR_MS
        self.master.retain(manual=True)
        assert self.master.store.first_offset > before

    async def invoke(self, to: Broker, code: int, **ext: str) -> None:
        reply = await self.client.invoke(to.address, Command(code, ext), 20)
        assert reply.code == ResponseCode.SUCCESS, reply.remark


def broker(root: Path, role: BrokerRole, clock: ShiftedClock, master: str = "") -> Broker:
    return Broker(
        BrokerConfig(
            broker_id=0 if role is not BrokerRole.SLAVE else 1,
            role=role,
            broker_ip1=HOST,
            store_path_root_dir=str(root),
        ),
        StoreConfig(commit_log_segment_size=1 << 14, index_slots=64, index_entries=64),
        RemotingConfig(listen_port=free_port(HOST), bind_address=HOST),
        ReplicationConfig(reconnect_ms_max=50, not_caught_up_ms=300, ha_master_address=master),
        clock=clock,
    )


@asynccontextmanager
async def nodes(directory: Path) -> AsyncIterator[Nodes]:
    clock = ShiftedClock()
    async with (
        RemotingClient(RemotingConfig()) as client,
        broker(directory / "m", BrokerRole.SYNC_MASTER, clock) as master,
    ):
        yield Nodes(directory, client, clock, master)


def has_all(slave: Broker, master: Broker) -> bool:
    return slave.store.appended == slave.store.dispatched == master.store.appended


def test_a_master_goes_on_by_itself_when_the_disk_was_full_while_its_slave_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[ReplicaRecord] = []
    real = replica_file.save

    def save(disk: Disk, root: Path, record: ReplicaRecord) -> None:
        if root.name == "m" and not room:
            refused.append(record)
            raise DiskFull("no room")
        real(disk, root, record)

    async def run() -> None:
        async with nodes(tmp_path) as n:
            async with n.slave():
                await n.send(3)
                room.clear()
            await until(lambda: bool(refused))
            room.add("again")
            await until(lambda: n.master.writer.refusal is None)
            await until(lambda: not in_sync(n.master))
            await n.send(3, copies=1)
            async with n.slave():
                await n.send(3)

    room = {"there is"}
    monkeypatch.setattr(replica_file, "save", save)
    asyncio.run(run())


def in_sync(master: Broker) -> bool:
    status = master.replication.status()
    return status is not None and any(replica.in_sync for replica in status.replicas)


def test_an_empty_slave_begins_where_the_masters_log_begins_after_retention(tmp_path: Path) -> None:
    async def run() -> None:
        async with nodes(tmp_path) as n:
            await n.send(60, copies=1)
            await n.expire()
            first = n.master.store.first_offset
            async with n.slave("new") as late:
                assert late.store.first_offset == first
                await n.send(3)
                await until(lambda: late.store.reader.queue_range(TOPIC, 0) == (54, 63))

    asyncio.run(run())


def test_a_slave_that_was_away_while_its_place_expired_begins_anew(tmp_path: Path) -> None:
    async def run() -> None:
        async with nodes(tmp_path) as n:
            async with n.slave():
                await n.send(10)
            await n.send(60, copies=1)
            await n.expire()
            async with n.slave() as back:
                assert back.store.first_offset == n.master.store.first_offset

    asyncio.run(run())


def test_numbers_of_expired_queues_are_with_a_new_slave_that_is_promoted(tmp_path: Path) -> None:
    async def run() -> None:
        async with nodes(tmp_path) as n:
            await n.send(7, queue_id=1, copies=1)
            await n.send(60, copies=1)
            await n.expire()
            assert n.master.store.reader.queue_range(TOPIC, 1) == (7, 7)
            async with n.slave("new") as late:
                await n.invoke(late, PairCode.PROMOTE, role="SYNC_MASTER")
                await until(lambda: late.is_master and late.writer.refusal is None)
                assert late.store.append(TOPIC, 1, 0, 0, 1, HOST_BYTES, 0, 0, b"", b"").queue_offset == 7

    asyncio.run(run())


def test_a_topic_deleted_and_made_anew_is_the_same_on_a_promoted_slave(tmp_path: Path) -> None:
    async def run() -> None:
        async with nodes(tmp_path) as n, n.slave() as slave:
            create = {"defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
            create |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
            await n.invoke(n.master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic=TOPIC, **create)
            await n.send(50)
            await n.invoke(
                n.master, RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup=GROUP, topic=TOPIC, queueId="0", commitOffset="50",
            )  # fmt: skip
            await until(lambda: slave.offsets.query(GROUP, TOPIC, 0) == 50)
            await n.invoke(n.master, RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
            await until(lambda: slave.offsets.query(GROUP, TOPIC, 0) < 0)
            await n.invoke(n.master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic=TOPIC, **create)
            await n.send(10)
            await until(lambda: has_all(slave, n.master))
            await n.invoke(slave, PairCode.PROMOTE, role="SYNC_MASTER")
            await until(lambda: slave.is_master)
            assert slave.store.reader.queue_range(TOPIC, 0) == (0, 10)
            slave.store.flush_all()
            names = {path.name for path in (slave.root / "consumequeue").iterdir()} - {".deleted"}
            assert names <= {TOPIC, LOG_MARK_TOPIC}

    asyncio.run(run())


def test_a_slave_restarted_while_its_master_is_dead_shows_what_it_showed(tmp_path: Path) -> None:
    """What was confirmed is known on its own disk: readers need not wait for the master."""

    async def story() -> None:
        async with RealPair(tmp_path) as pair:
            for broker in pair.brokers:
                broker.start()
            await pair.in_sync(quiet=False)
            load = pair.load()
            await load.reached(300)

            async def readable() -> bool:
                for queue_id in {told.queue_id for told in result.acknowledged}:
                    highest = max(told.queue_offset for told in result.acknowledged if told.queue_id == queue_id)
                    command = Command(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": str(queue_id)})
                    try:
                        reply = await pair.client.invoke(pair.slave.address, command, 5)
                    except RemotingError:
                        return False
                    if int(reply.ext.get("offset", -1)) <= highest:
                        return False
                return await has_key()

            async def has_key() -> bool:
                times = {"beginTimestamp": "0", "endTimestamp": str(1 << 62)}
                command = Command(RequestCode.QUERY_MESSAGE, {"topic": "T", "key": "last", "maxNum": "4", **times})
                return bool((await pair.client.invoke(pair.slave.address, command, 5)).code == ResponseCode.SUCCESS)

            result = await load.stop()
            properties = encode_properties({"KEYS": "last"}).decode()
            last = SendHeader(
                producerGroup="pg", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0,
                sysFlag=0, bornTimestamp=1, flag=0, properties=properties,
            )  # fmt: skip
            send = Command(RequestCode.SEND_MESSAGE, send_ext(last, short=False), b"with a key")
            assert (await pair.client.invoke(pair.master.address, send, 20)).code == ResponseCode.SUCCESS
            # A master tells what is confirmed a moment after it knows: killed before, it leaves a slave that must wait.
            await until(readable, "the slave shows every message")
            pair.slave.kill()
            pair.master.kill()
            pair.slave.start()
            await until(readable, "every message that the slave has shown can be read there again")

    asyncio.run(story())
