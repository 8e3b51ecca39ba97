"""The broker's numbers in Prometheus' text format, rendered from one snapshot.

Nothing is registered and nothing is counted here: every scrape reads the counters that exist anyway. Series per topic
and group are limited to SERIES_MAX; past it the busiest are shown and `tandemq_series_dropped` says how many are not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tandemq.replication.status import HaStatus, ReplicaStatus
from tandemq.replication.waits import WaitHistogram

SERIES_MAX = 5000
REPLICAS_MAX = 64
"""Series per slave; connected ones first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNumbers:
    topic: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNumbers:
    topic: str
    group: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LagNumbers:
    topic: str
    group: str
    behind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """What one scrape shows."""

    cluster: str
    broker: str
    role: str
    topics: Sequence[TopicNumbers] = ()
    groups: Sequence[GroupNumbers] = ()
    lags: Sequence[LagNumbers] = ()
    log_offsets: Mapping[str, int] = field(default_factory=dict)
    """first, appended, flushed, dispatched, confirmed: positions in the commit log"""
    gauges: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    """name -> (help, value), for single numbers: connections, parked pulls, pending acknowledgements …"""
    counters: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    delayed: Mapping[int, int] = field(default_factory=dict)
    """delay level -> messages that wait"""
    ha: HaStatus | None = None
    """The snapshot `tandemq ha status` shows too"""
    is_writable: bool = True
    waits: WaitHistogram | None = None


def render(snapshot: BrokerSnapshot) -> bytes:
    """The body of a GET /metrics."""
    return generate_latest(_Snapshot(snapshot))


class _Snapshot(Collector):
    """What `generate_latest` reads."""

    def __init__(self, snapshot: BrokerSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        s = self._snapshot
        info = GaugeMetricFamily("tandemq_broker", "Always 1; who this is.", labels=["cluster", "broker", "role"])
        info.add_metric([s.cluster, s.broker, s.role], 1)
        yield info
        yield from _topics(s.topics)
        yield from _groups(s.groups)
        lag = GaugeMetricFamily(
            "tandemq_consumer_lag_messages", "Messages a group has not consumed yet.", labels=["topic", "group"]
        )
        for numbers in sorted(s.lags, key=lambda n: -n.behind)[:SERIES_MAX]:
            lag.add_metric([numbers.topic, numbers.group], numbers.behind)
        yield lag
        yield _offsets(s.log_offsets)
        yield _delayed(s.delayed)
        if s.ha is not None:
            yield from _ha(s.ha, s.is_writable)
            yield from _replicas(s.ha.replicas)
        if s.waits is not None:
            yield HistogramMetricFamily(
                "tandemq_ack_wait_seconds",
                "How long sends waited for a flush or for copies, those that were too late included.",
                buckets=list(s.waits.cumulative()),
                sum_value=s.waits.seconds,
            )
        for name, (text, value) in s.gauges.items():
            yield GaugeMetricFamily(f"tandemq_{name}", text, value=value)
        for name, (text, value) in s.counters.items():
            yield CounterMetricFamily(f"tandemq_{name}", text, value=value)
        dropped = sum(max(0, len(series) - SERIES_MAX) for series in (s.topics, s.groups, s.lags))
        yield GaugeMetricFamily("tandemq_series_dropped", "Topics and groups too many to show.", value=dropped)


def _topics(topics: Iterable[TopicNumbers]) -> Iterator[Metric]:
    messages = CounterMetricFamily("tandemq_messages_in", "Messages stored.", labels=["topic"])
    size = CounterMetricFamily("tandemq_bytes_in", "Bytes stored.", labels=["topic"])
    for numbers in sorted(topics, key=lambda n: -n.messages)[:SERIES_MAX]:
        messages.add_metric([numbers.topic], numbers.messages)
        size.add_metric([numbers.topic], numbers.bytes)
    yield messages
    yield size


def _groups(groups: Iterable[GroupNumbers]) -> Iterator[Metric]:
    messages = CounterMetricFamily("tandemq_messages_out", "Messages handed out.", labels=["topic", "group"])
    size = CounterMetricFamily("tandemq_bytes_out", "Bytes handed out.", labels=["topic", "group"])
    for numbers in sorted(groups, key=lambda n: -n.messages)[:SERIES_MAX]:
        messages.add_metric([numbers.topic, numbers.group], numbers.messages)
        size.add_metric([numbers.topic, numbers.group], numbers.bytes)
    yield messages
    yield size


def _offsets(offsets: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily("tandemq_log_offset_bytes", "Positions in the commit log.", labels=["position"])
    for name, value in offsets.items():
        family.add_metric([name], value)
    return family


def _delayed(delayed: Mapping[int, int]) -> Metric:
    family = GaugeMetricFamily("tandemq_delayed_messages", "Messages that wait for their time.", labels=["level"])
    for level, count in delayed.items():
        family.add_metric([str(level)], count)
    return family


def _ha(status: HaStatus, is_writable: bool) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "tandemq_ha_state", "Always 1; as in `tandemq ha status`.", labels=["role", "phase", "reason"]
    )
    state.add_metric([status.role, status.phase, status.reason], 1)
    yield state
    for name, text, value in (
        ("epoch", "The epoch this node reigns in, or serves.", status.epoch),
        ("writable", "1 while this node takes messages.", int(is_writable)),
        ("following", "1 while this slave follows its master.", int(status.role == "slave" and _follows(status))),
        ("in_sync_replicas", "Slaves whose acks count.", sum(replica.in_sync for replica in status.replicas)),
        ("members", "Other nodes known to belong to the group.", len(status.members)),
        ("waiting_for", "Replicas this master must hear before it writes.", len(status.waiting_for)),
    ):
        yield GaugeMetricFamily(f"tandemq_ha_{name}", text, value=value)
    yield CounterMetricFamily("tandemq_ha_cut_bytes", "Bytes cut off this log and saved aside.", value=status.cut_bytes)
    events = CounterMetricFamily("tandemq_ha_events", "What happened, how often.", labels=["event"])
    for event, count in sorted(status.events.items())[:SERIES_MAX]:
        events.add_metric([event], count)
    yield events


def _follows(status: HaStatus) -> bool:
    return status.phase == "following"


def _replicas(replicas: Iterable[ReplicaStatus]) -> Iterator[Metric]:
    offsets = GaugeMetricFamily(
        "tandemq_replica_offset_bytes", "What a slave has acknowledged.", labels=["replica", "position"]
    )
    in_sync = GaugeMetricFamily("tandemq_replica_in_sync", "1 while its acks count.", labels=["replica"])
    lag_bytes = GaugeMetricFamily("tandemq_replica_lag_bytes", "Bytes it does not have yet.", labels=["replica"])
    lag = GaugeMetricFamily("tandemq_replica_lag_seconds", "How long ago it had everything.", labels=["replica"])
    rate = GaugeMetricFamily("tandemq_replica_rate_bytes", "Bytes a second it is being sent.", labels=["replica"])
    for replica in sorted(replicas, key=lambda one: not one.peer)[:REPLICAS_MAX]:
        name = replica.replica
        if replica.peer:
            positions = {"received": replica.received, "durable": replica.durable, "applied": replica.applied}
            for position, value in positions.items():
                offsets.add_metric([name, position], value)
            lag_bytes.add_metric([name], replica.lag_bytes)
            lag.add_metric([name], replica.lag_ms / 1000)
            rate.add_metric([name], replica.rate)
        in_sync.add_metric([name], int(replica.in_sync))
    yield from (offsets, in_sync, lag_bytes, lag, rate)
