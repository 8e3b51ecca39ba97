"""One picture of a running broker: everything that `GET /metrics` and GET_BROKER_RUNTIME_INFO show as single numbers.

It is read from counters and tables that exist anyway, at the moment somebody asks, in microseconds. Numbers by topic
and group stay in their tables; whoever renders them walks those.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.remoting.server import ServerStatus
from tandemq.replication.status import HaStatus
from tandemq.replication.waits import WaitHistogram

if TYPE_CHECKING:
    from tandemq.broker.broker import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """A broker at one moment. Offsets are physical offsets, positions in the commit log."""

    now: float = 0.0
    """Monotonic seconds"""
    wall_ms: int = 0
    cluster: str
    broker: str
    role: str
    is_master: bool = False
    is_writable: bool = False
    """Whether sends are taken: role, replication and disk allow it"""

    first_offset: int = 0
    dispatched: int = 0
    readable: int = 0
    flushed: int = 0
    appended: int = 0
    earliest_timestamp: int = -1
    """Store time of the oldest readable message, -1 if there is none"""
    store_writable: bool = True
    disk_used_ratio: float = 0.0
    disk_total: int = 0
    disk_free: int = 0

    server: ServerStatus = field(default_factory=ServerStatus)
    producers: int = 0
    consumers: int = 0
    pulls_parked: int = 0
    pulls_parked_max: int = 0
    sends_pending: int = 0
    sends_pending_max: int = 0
    queue_locks: int = 0
    topics: int = 0
    groups: int = 0
    forwarded: int = 0
    forwards_refused: int = 0
    """Requests of clients that were handed to the master, and that found none"""
    name_servers: int = 0
    """Name servers that know this broker"""
    start_accept_ms: int = 0
    delay_progress: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """delay level -> (next queue offset to deliver, end of its queue)"""
    timer_messages: int = 0
    ha: HaStatus | None = None
    """What `tandemq ha status` shows too"""
    ack_waits: WaitHistogram | None = None


def take_snapshot(broker: "Broker") -> BrokerSnapshot:
    """Returns the broker as it is now."""
    config, store, schedule = broker.live.broker, broker.store, broker.delay_schedule
    status, disk = store.status(), shutil.disk_usage(broker.root)
    producers, consumers = broker.members.counts()
    return BrokerSnapshot(
        now=broker.clock.monotonic(),
        wall_ms=broker.clock.wall_ms(),
        cluster=config.cluster_name,
        broker=config.broker_name,
        role=broker.role.value,
        is_master=broker.is_master,
        is_writable=broker.writer.refusal is None and status.writable,
        first_offset=status.first_offset,
        dispatched=status.dispatched,
        readable=status.readable_limit,
        flushed=status.flushed,
        appended=status.appended,
        earliest_timestamp=_earliest_timestamp(broker),
        store_writable=status.writable,
        disk_used_ratio=status.disk_used_ratio,
        disk_total=disk.total,
        disk_free=disk.free,
        server=broker.server.status(),
        producers=producers,
        consumers=consumers,
        pulls_parked=len(broker.pulls.parked),
        pulls_parked_max=config.pull_parked_max,
        sends_pending=len(broker.acks),
        sends_pending_max=config.send_pending_max,
        queue_locks=len(broker.locks),
        topics=len(broker.topics),
        groups=len(broker.groups),
        forwarded=broker.forwarder.forwarded,
        forwards_refused=broker.forwarder.refused,
        name_servers=len(broker.registration.registered_with),
        start_accept_ms=config.start_accept_send_request_timestamp,
        delay_progress={
            level: (schedule.offset(level), store.reader.queue_range(SCHEDULE_TOPIC, level - 1)[1])
            for level in schedule.levels
        },
        timer_messages=broker.services.timers.waiting,
        ha=broker.replication.status(),
        ack_waits=broker.acks.waits,
    )


def _earliest_timestamp(broker: "Broker") -> int:
    store = broker.store
    if store.first_offset >= store.readable_limit:
        return -1
    return store.reader.read(store.first_offset).store_timestamp
