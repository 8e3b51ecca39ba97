"""What Admin answers: frozen snapshots that CLI and dashboard render."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tandemq.model.route import BrokerGroup
from tandemq.model.topic import QueueRef


@dataclass(frozen=True, slots=True)
class ClusterView:
    clusters: Mapping[str, tuple[str, ...]]
    """cluster -> broker names"""
    groups: Mapping[str, BrokerGroup]
    """broker name -> its members"""


@dataclass(frozen=True, slots=True)
class BrokerView:
    address: str
    facts: Mapping[str, str]
    """GET_BROKER_RUNTIME_INFO: RocketMQ's names and texts."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    queue: QueueRef
    min_offset: int
    max_offset: int
    last_update_ms: int
    """0: nothing was ever stored, or the broker does not say."""

    @property
    def count(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class QueueLag:
    queue: QueueRef
    broker_offset: int
    consumer_offset: int
    last_timestamp_ms: int
    """Store time of the last consumed message."""

    @property
    def lag(self) -> int:
        return max(0, self.broker_offset - max(0, self.consumer_offset))


@dataclass(frozen=True, slots=True)
class GroupProgress:
    group: str
    queues: tuple[QueueLag, ...]
    consume_tps: float

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues)


@dataclass(frozen=True, slots=True)
class GroupMember:
    client_id: str
    address: str
    language: str
    version: int
    subscriptions: Mapping[str, str] = field(default_factory=dict)
    """Topic -> expression, as the group's heartbeats said."""
    brokers: int = 1
    """How many masters it is connected to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaReplica:
    address: str
    acked_offset: int
    behind: int
    in_sync: bool
    bytes_per_second: int
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What TandemQ's brokers say beyond upstream's fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaView:
    address: str
    master: bool
    max_offset: int
    in_sync: int
    replicas: tuple[HaReplica, ...]
    slave: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
