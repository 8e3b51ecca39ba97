"""What a running broker shows of itself: the table of GET_BROKER_RUNTIME_INFO and the numbers of a metrics scrape.

Everything is read from counters and tables that exist anyway, at the moment somebody asks.
"""

import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tandemq.broker.runtime_info import RuntimeFacts, runtime_info
from tandemq.model.topic import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from tandemq.broker.broker import Broker
    from tandemq.broker.metrics import LagNumbers


def runtime_table(broker: "Broker") -> Mapping[str, str]:
    """For mqadmin's clusterList and brokerStatus."""
    config, store = broker.live.broker, broker.store
    disk = shutil.disk_usage(broker.root)
    facts = RuntimeFacts(
        now=broker.clock.monotonic(),
        wall_ms=broker.clock.wall_ms(),
        is_active=broker.is_master,
        first_offset=store.first_offset,
        appended=store.appended,
        flushed=store.flushed,
        dispatched=store.dispatched,
        earliest_timestamp=_earliest_timestamp(broker),
        disk_used_ratio=disk.used / (disk.used + disk.free),
        disk_total=disk.total,
        disk_free=disk.free,
        sends_pending=len(broker.acks),
        sends_pending_max=config.send_pending_max,
        pulls_parked=len(broker.pulls.parked),
        pulls_parked_max=config.pull_parked_max,
        start_accept_ms=config.start_accept_send_request_timestamp,
        delay_progress={
            level: (broker.delay_schedule.offset(level), store.queue_range(SCHEDULE_TOPIC, level - 1)[1])
            for level in broker.delay_schedule.levels
        },
        timer_waiting=broker.timers.waiting,
    )
    return runtime_info(broker.stats, facts)


def rendered_metrics(broker: "Broker") -> bytes:
    """The body of GET /metrics. Prometheus' library is imported by the first scrape: start-up is faster without it."""
    from tandemq.broker.metrics import BrokerSnapshot, GroupNumbers, TopicNumbers, render

    config, store, schedule = broker.live.broker, broker.store, broker.delay_schedule
    server, status = broker.server.status(), store.status()
    producers, consumers = broker.members.counts()
    ha = broker.replication.status()
    snapshot = BrokerSnapshot(
        cluster=config.cluster_name,
        broker=config.broker_name,
        role=broker.role.value,
        topics=[TopicNumbers(topic=t, messages=f.messages, bytes=f.bytes) for t, f in broker.stats.topics()],
        groups=[
            GroupNumbers(topic=topic, group=group, messages=flow.messages, bytes=flow.bytes)
            for (topic, group), flow in broker.stats.groups()
        ],
        lags=list(_lags(broker)),
        log_offsets={
            "first": status.first_offset,
            "dispatched": status.dispatched,
            "readable": status.readable_limit,
            "flushed": status.flushed,
            "appended": status.appended,
            **({"confirmed": ha.confirmed} if ha is not None else {}),
        },
        ha=ha,
        is_writable=broker.writer.refusal is None and status.writable,
        waits=broker.acks.waits,
        gauges={
            "connections": ("Open client connections.", server.connections),
            "unsent_bytes": ("Bytes clients have not read yet.", server.unsent_size),
            "producers": ("Live producers.", producers),
            "consumers": ("Live consumers.", consumers),
            "parked_pulls": ("Pulls that wait for a message.", len(broker.pulls.parked)),
            "pending_acks": ("Sends that wait for a flush or for copies.", len(broker.acks)),
            "queue_locks": ("Locks of ordered consumers.", len(broker.locks)),
            "topics": ("Topics.", len(broker.topics)),
            "subscription_groups": ("Subscription groups.", len(broker.groups)),
            "name_servers_registered": ("Name servers that know us.", len(broker.registration.registered_with)),
            "store_writable": ("1 while appends are accepted.", 1.0 if status.writable else 0.0),
            "disk_used_ratio": ("Use of the store's disk.", status.disk_used_ratio),
            "timer_messages": ("Messages that wait for an exact time.", broker.timers.waiting),
        },
        counters={
            "requests": ("Requests taken.", server.requests),
            "requests_failed": ("Requests answered with an error.", server.failures),
            "connections_accepted": ("Connections accepted.", server.connections_total),
            "connections_refused": ("Connections refused.", server.connections_refused),
            "received_bytes": ("Bytes received from clients.", server.bytes_in),
            "sent_bytes": ("Bytes sent to clients.", server.bytes_out),
            "pulls_found": ("Pulls that found messages.", broker.stats.pulls_found),
            "pulls_missed": ("Pulls that found nothing.", broker.stats.pulls_missed),
        },
        delayed={
            level: max(0, store.queue_range(SCHEDULE_TOPIC, level - 1)[1] - schedule.offset(level))
            for level in schedule.levels
        },
    )
    return render(snapshot)


def _lags(broker: "Broker") -> Iterator["LagNumbers"]:
    from tandemq.broker.metrics import LagNumbers

    for (topic, group), queues in broker.offsets.all().items():
        behind = sum(max(0, broker.store.queue_range(topic, q)[1] - offset) for q, offset in queues.items())
        yield LagNumbers(topic=topic, group=group, behind=behind)


def _earliest_timestamp(broker: "Broker") -> int:
    """Store time of the oldest readable message, -1 for none."""
    store = broker.store
    if store.first_offset >= store.readable_limit:
        return -1
    return store.read(store.first_offset).store_timestamp
