"""What replication needs of the broker that it belongs to: its parts, and the few ways in which its role changes."""

from pathlib import Path
from typing import Protocol

from tandemq.broker.config import BrokerRole
from tandemq.broker.forwarding import Forwarder
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.registration import Registration
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.remoting.client import RemotingClient
from tandemq.replication.acks import AckQueue
from tandemq.store.message_store import MessageStore


class PairHost(Protocol):
    """A broker, as the parts of its pair and its failover see it; `Broker` says what each method does."""

    live: LiveConfig
    clock: Clock
    root: Path
    address: str
    ha_port: int
    role: BrokerRole
    store: MessageStore
    writer: MessageWriter
    acks: AckQueue
    offsets: OffsetTable
    delay_schedule: DelaySchedule
    registration: Registration
    forwarder: Forwarder
    client: RemotingClient
    asking_client: RemotingClient
    peer_client: RemotingClient

    @property
    def is_master(self) -> bool: ...

    @property
    def is_started(self) -> bool: ...

    def allow_writes(self, *, services: bool = True) -> None: ...

    async def forbid_writes(self, reason: str) -> None: ...

    def start_services(self) -> None: ...

    async def rest_services(self) -> None: ...

    async def change_role(self, role: BrokerRole, broker_id: int) -> None: ...

    async def take_role(self, role: BrokerRole, broker_id: int) -> None: ...

    def assume_role(self, role: BrokerRole, broker_id: int) -> None: ...

    def log_was_cut(self) -> None: ...
