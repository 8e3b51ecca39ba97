"""Renders a broker for GET /metrics.

Nothing is registered and nothing is counted here: a scrape reads the counters that exist anyway. Series by topic and
group are limited to SERIES_MAX; beyond it the busiest are shown and `tandemq_series_dropped` says how many are not.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from tandemq.broker.telemetry.progress import GroupLag, Progress
from tandemq.broker.telemetry.snapshot import BrokerSnapshot, take_snapshot
from tandemq.broker.telemetry.traffic import BrokerStats, Flow
from tandemq.remoting.metrics_text import Family, Sample, build_info, counter, gauge, rendered, rendered_histogram
from tandemq.replication.status import HaStatus, ReplicaStatus

if TYPE_CHECKING:
    from tandemq.broker.broker import Broker

SERIES_MAX = 5000
REPLICAS_MAX = 64
"""Series by slave; connected ones first."""

_Key = TypeVar("_Key")


def scrape(broker: "Broker") -> Iterator[str]:
    """Yields the text of a GET /metrics in pieces; the broker may go on between two of them."""
    return render(take_snapshot(broker), broker.stats, broker.progress)


def render(snapshot: BrokerSnapshot, stats: BrokerStats, progress: Progress) -> Iterator[str]:
    """Yields the text for a snapshot, traffic by topic and group, and how far groups are behind."""
    yield from rendered(_numbers(snapshot))
    if snapshot.ack_waits is not None:
        yield from rendered_histogram(
            "tandemq_ack_wait_seconds",
            "How long sends waited for a flush or for copies, those that were too late included.",
            snapshot.ack_waits.cumulative(),
            snapshot.ack_waits.seconds,
        )
    if snapshot.ha is not None:
        yield from rendered(_ha(snapshot.ha, snapshot.is_writable))
        if snapshot.ha.lease_left is not None:
            yield from rendered(_elections(snapshot.ha))
        yield from rendered(_replicas(snapshot.ha.replicas))
    yield from rendered(
        (
            counter("tandemq_pulls_found_total", "Pulls that found messages.", stats.pulls_found),
            counter("tandemq_pulls_missed_total", "Pulls that found nothing.", stats.pulls_missed),
        )
    )
    topics, groups = dict(stats.topics()), dict(stats.groups())
    yield from rendered(_topics(topics))
    yield from rendered(_groups(groups))
    lags: list[GroupLag] = []
    for lag in progress.group_lags():
        lags.append(lag)
        yield ""  # counting takes longer than writing: whoever drives this may pause here
    yield from rendered(_lags(lags))
    dropped = sum(max(0, len(series) - SERIES_MAX) for series in (topics, groups, lags))
    yield from rendered([gauge("tandemq_series_dropped", "Topics and groups too many to show.", dropped)])


def _numbers(s: BrokerSnapshot) -> Iterator[Family]:
    yield build_info()
    yield Family(
        "tandemq_broker", "gauge", "Always 1; says who this is.", [((s.cluster, s.broker, s.role), 1)],
        ("cluster", "broker", "role"),
    )  # fmt: skip
    positions = {
        "first": s.first_offset,
        "dispatched": s.dispatched,
        "readable": s.readable,
        "flushed": s.flushed,
        "appended": s.appended,
    }
    if s.ha is not None:
        positions["confirmed"] = s.ha.confirmed
    yield Family(
        "tandemq_log_offset_bytes", "gauge", "Positions in the commit log.",
        [((name,), value) for name, value in positions.items()], ("position",),
    )  # fmt: skip
    yield Family(
        "tandemq_delayed_messages", "gauge", "Messages that wait for their delay.",
        [((str(level),), max(0, end - offset)) for level, (offset, end) in s.delay_progress.items()], ("level",),
    )  # fmt: skip
    turn = s.server.longest_turn
    yield Family(
        "tandemq_loop_longest_turn_seconds", "gauge", "The longest the loop was held lately, and by what.",
        [((turn.what,), turn.seconds)], ("what",),
    )  # fmt: skip
    yield gauge("tandemq_connections", "Open client connections.", s.server.connections)
    yield gauge("tandemq_unsent_bytes", "Bytes of answers that clients have not read yet.", s.server.unsent_size)
    yield gauge("tandemq_producers", "Live producers.", s.producers)
    yield gauge("tandemq_consumers", "Live consumers.", s.consumers)
    yield gauge("tandemq_parked_pulls", "Pulls that wait for a message.", s.pulls_parked)
    yield gauge("tandemq_pending_acks", "Sends that wait for a flush or for copies.", s.sends_pending)
    yield gauge("tandemq_queue_locks", "Locks of ordered consumers.", s.queue_locks)
    yield gauge("tandemq_topics", "Topics.", s.topics)
    yield gauge("tandemq_subscription_groups", "Subscription groups.", s.groups)
    yield gauge("tandemq_name_servers_registered", "Name servers that know this broker.", s.name_servers)
    yield gauge("tandemq_store_writable", "1 while appends are accepted.", int(s.store_writable))
    yield gauge("tandemq_disk_used_ratio", "Use of the store's disk.", s.disk_used_ratio)
    yield gauge("tandemq_timer_messages", "Messages that wait for an exact time.", s.timer_messages)
    yield counter("tandemq_requests_total", "Requests taken.", s.server.requests)
    yield counter("tandemq_requests_failed_total", "Requests answered with an error.", s.server.failures)
    yield counter("tandemq_forwarded_total", "Requests of clients that the master answered instead.", s.forwarded)
    yield counter("tandemq_forwards_refused_total", "Such requests that no master took.", s.forwards_refused)
    yield counter("tandemq_connections_accepted_total", "Connections accepted.", s.server.connections_total)
    yield counter("tandemq_connections_refused_total", "Connections refused.", s.server.connections_refused)
    yield counter("tandemq_received_bytes_total", "Bytes received from clients.", s.server.bytes_in)
    yield counter("tandemq_sent_bytes_total", "Bytes sent to clients.", s.server.bytes_out)


def _topics(topics: Mapping[str, Flow]) -> Iterator[Family]:
    shown = _busiest(topics)
    yield Family(
        "tandemq_messages_in_total", "counter", "Messages stored.",
        (((topic,), flow.messages) for topic, flow in shown), ("topic",),
    )  # fmt: skip
    yield Family(
        "tandemq_bytes_in_total", "counter", "Bytes stored.",
        (((topic,), flow.bytes) for topic, flow in shown), ("topic",),
    )  # fmt: skip


def _groups(groups: Mapping[tuple[str, str], Flow]) -> Iterator[Family]:
    shown, labels = _busiest(groups), ("topic", "group")
    messages = ((key, flow.messages) for key, flow in shown)
    yield Family("tandemq_messages_out_total", "counter", "Messages handed out.", messages, labels)
    size = ((key, flow.bytes) for key, flow in shown)
    yield Family("tandemq_bytes_out_total", "counter", "Bytes handed out.", size, labels)


def _busiest(flows: Mapping[_Key, Flow]) -> list[tuple[_Key, Flow]]:
    if len(flows) <= SERIES_MAX:
        return list(flows.items())
    return heapq.nlargest(SERIES_MAX, flows.items(), key=lambda item: item[1].messages)


def _lags(lags: list[GroupLag]) -> Iterator[Family]:
    shown = lags if len(lags) <= SERIES_MAX else heapq.nlargest(SERIES_MAX, lags, key=lambda lag: lag.behind)
    samples = (((lag.topic, lag.group), lag.behind) for lag in shown)
    yield Family(
        "tandemq_consumer_lag_messages", "gauge", "Messages that a group has not consumed yet.", samples,
        ("topic", "group"),
    )  # fmt: skip


def _ha(status: HaStatus, is_writable: bool) -> Iterator[Family]:
    yield Family(
        "tandemq_ha_state", "gauge", "Always 1; as in `tandemq ha status`.",
        [((status.role, status.phase, status.reason), 1)], ("role", "phase", "reason"),
    )  # fmt: skip
    is_following = status.role == "slave" and status.phase == "following"
    in_sync = sum(replica.in_sync for replica in status.replicas)
    yield gauge("tandemq_ha_epoch", "The epoch of this node's log.", status.epoch)
    yield gauge("tandemq_ha_writable", "1 while this node takes messages.", int(is_writable))
    yield gauge("tandemq_ha_following", "1 while this slave follows its master.", int(is_following))
    yield gauge("tandemq_ha_in_sync_replicas", "Slaves whose acknowledgements count.", in_sync)
    yield gauge("tandemq_ha_members", "Other nodes known to belong to the group.", len(status.members))
    waiting = len(status.waiting_for)
    yield gauge("tandemq_ha_waiting_for", "Replicas that must answer before this master writes.", waiting)
    missing = "Bytes that a RocketMQ master had kept and this slave never copied, as far as it was told."
    yield gauge("tandemq_ha_missing_history_bytes", missing, status.missing_bytes)
    yield counter("tandemq_ha_cut_bytes_total", "Bytes cut off this log and saved aside.", status.cut_bytes)
    yield Family(
        "tandemq_ha_events_total", "counter", "What happened, and how often.",
        [((event,), count) for event, count in sorted(status.events.items())[:SERIES_MAX]], ("event",),
    )  # fmt: skip


def _elections(status: HaStatus) -> Iterator[Family]:
    """Returns the series of a broker with a coordinator."""
    left = status.lease_left or 0.0
    yield gauge("tandemq_ha_lease_remaining_seconds", "How long this master may acknowledge without a renewal.", left)
    yield gauge("tandemq_ha_without_master_seconds", "How long nobody has reigned.", status.without_master)
    yield Family(
        "tandemq_ha_elections_total", "counter", "Reigns that began on this node, by reason.",
        [((reason,), count) for reason, count in sorted(status.elections.items())], ("reason",),
    )  # fmt: skip


def _replicas(replicas: Iterable[ReplicaStatus]) -> Iterator[Family]:
    shown = sorted(replicas, key=lambda one: (not one.is_member, not one.peer))[:REPLICAS_MAX]
    known = [replica for replica in shown if replica.peer or replica.is_member]
    positions: list[Sample] = [
        ((replica.replica, position), value)
        for replica in known
        for position, value in (
            ("received", replica.received),
            ("durable", replica.durable),
            ("applied", replica.applied),
        )
    ]
    yield Family(
        "tandemq_replica_offset_bytes", "gauge", "What a slave has acknowledged.", positions, ("replica", "position")
    )
    yield _by_replica("in_sync", "1 while its acknowledgements count.", ((r, int(r.in_sync)) for r in shown))
    yield _by_replica("lag_bytes", "Bytes it does not have yet.", ((r, r.lag_bytes) for r in known))
    yield _by_replica("lag_seconds", "How long ago it had everything.", ((r, r.lag_ms / 1000) for r in known))
    yield _by_replica("rate_bytes", "Bytes a second it is being sent.", ((r, r.rate) for r in known))


def _by_replica(name: str, meaning: str, numbers: Iterable[tuple[ReplicaStatus, float]]) -> Family:
    samples = (((replica.replica,), number) for replica, number in numbers)
    return Family(f"tandemq_replica_{name}", "gauge", meaning, samples, ("replica",))
