"""A broker's tables, store and writer on a memory disk, without ports: what tests of handlers and services need."""

import asyncio
from pathlib import Path
from typing import Any

from tandemq.broker.config import BrokerConfig
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.new_message import NewMessage
from tandemq.broker.record_slices import messages_of
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.topics import TopicTable, system_topics
from tandemq.broker.telemetry.progress import Progress
from tandemq.broker.telemetry.traffic import BrokerStats
from tandemq.broker.writer import MessageWriter, Queues
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.model.ack_level import AckLevel
from tandemq.model.message import StoredMessage
from tandemq.model.topic import TopicConfig
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.acks import AckQueue
from tandemq.replication.config import ReplicationConfig
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import MemoryDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import Appended, MessageStore

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
ADDRESS = "10.0.0.1:10911"
STORE = StoreConfig(commit_log_segment_size=4 * 1024 * 1024, index_slots=100, index_entries=1000)


class FakeConnection:
    """What handlers do with a connection, kept: `sent` are the commands, `answers` are given to `invoke` in turn."""

    is_forwarded = False

    def __init__(self, peer: str = "10.0.0.9:40000") -> None:
        self.peer = peer
        self.peer_host_bytes = bytes((10, 0, 0, 9)) + (40000).to_bytes(4, "big")
        self.is_writable = self.is_open = True
        self.account = ""
        self.sent: list[Command] = []
        self.invoked: list[Command] = []
        self.answers: list[Command | Exception] = []
        self.closed: list[str] = []
        self.state: dict[str, Any] = {}

    def send(self, data: bytes) -> None:
        self.sent += decoded(data)

    send_now = send

    def send_parts(self, parts: list[bytes | bytearray | memoryview]) -> None:
        self.send(b"".join(parts))

    def close(self, reason: str = "") -> None:
        self.closed.append(reason)

    def send_oneway(self, command: Command) -> None:
        self.sent.append(command)

    async def invoke(self, command: Command, timeout: float) -> Command:
        self.invoked.append(command)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def decoded(data: bytes) -> list[Command]:
    """Returns the commands in encoded frames."""
    return [decode_command(frame) for frame in FrameReader().feed(data)]


class BrokerParts:
    """Create it inside a running loop; `settle()` lets dispatch happen."""

    def __init__(
        self,
        disk: MemoryDisk | None = None,
        clock: ManualClock | None = None,
        store_config: StoreConfig = STORE,
        **broker_options: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.disk = disk or MemoryDisk()
        config = BrokerConfig(broker_name="broker-a", **broker_options)
        self.live = LiveConfig(config, store_config, RemotingConfig(), ReplicationConfig(), self.clock.wall_ms)
        self.store = MessageStore.open(Path("/store"), store_config, clock=self.clock, disk=self.disk, store_host=HOST)
        self.arrived: list[Queues] = []
        self.writer = MessageWriter(
            self.store,
            AckQueue(),
            self.clock,
            asyncio.get_running_loop(),
            level=AckLevel(1),
            sync_flush=False,
            flush_timeout_ms=5000,
            copies_timeout_ms=3000,
            pending_max=1000,
            on_arrival=self._on_arrival,
        )
        self.topics = TopicTable(self.clock.wall_ms)
        for topic in system_topics("DefaultCluster", "broker-a"):
            self.topics.add_system(topic)
        self.groups = GroupTable(self.clock.wall_ms)
        self.offsets = OffsetTable(self.clock.wall_ms)
        self.members = Members()
        self.stats = BrokerStats(self.clock.monotonic(), self.clock.wall_ms())
        self.progress = Progress(
            self.store, self.topics, self.offsets, self.members, self.stats, self.clock, "broker-a"
        )
        self.on_arrival: Any = lambda queues: None

    def _on_arrival(self, queues: Queues) -> None:
        self.arrived.append(queues)
        self.on_arrival(queues)

    def topic(self, name: str, queues: int = 2) -> TopicConfig:
        return self.topics.create_internal(name, queues)

    def send(self, topic: str, body: bytes = b"x", queue_id: int = 0, **properties: str) -> Appended:
        return self.writer.append(
            NewMessage(
                topic=topic,
                queue_id=queue_id,
                body=body,
                properties=properties,
                born_timestamp=self.clock.wall_ms(),
                born_host=HOST,
            )
        )

    def read(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """Returns everything a queue holds."""
        first, last = self.store.reader.queue_range(topic, queue_id)
        found: list[StoredMessage] = []
        while first < last:
            got = self.store.reader.get(topic, queue_id, first, 100, 1 << 20)
            found += messages_of(got.slices)
            first = got.next_offset
        return found

    async def settle(self) -> None:
        """Lets the loop turn a few times: dispatch, arrivals, services that were woken."""
        for _ in range(10):
            await asyncio.sleep(0)
