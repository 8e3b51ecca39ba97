"""The metrics text: what Prometheus' own parser reads back."""

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from tandemq.broker.telemetry.progress import GroupLag
from tandemq.broker.telemetry.prometheus import SERIES_MAX, render
from tandemq.broker.telemetry.snapshot import BrokerSnapshot
from tandemq.broker.telemetry.traffic import BrokerStats
from tandemq.remoting.server import ServerStatus
from tandemq.replication.status import HaStatus, ReplicaStatus
from tandemq.replication.waits import WaitHistogram

LABELS = (
    "cluster",
    "broker",
    "role",
    "topic",
    "group",
    "position",
    "level",
    "replica",
    "phase",
    "reason",
    "event",
    "le",
)
HA = HaStatus(
    role="master",
    phase="open",
    replica="m",
    group="C/b",
    epoch=7,
    first=0,
    end=1000,
    flushed=900,
    confirmed=950,
    level="2",
    replicas=(
        ReplicaStatus("s1", "a:1", "a:2", "in sync", "extended", 950, 900, 800, 50, 1500, 2.0, True),
        ReplicaStatus(
            "s2", "", "", "away", "", 700, 600, 0, 300, 9000, 0.0, False, True, "gone", "connection-lost", "wait", 4000
        ),
        ReplicaStatus("scanner", "", "", "not connected", "", 0, 0, 0, 0, 0, 0.0, False, False, "no hello"),
    ),
    cut_bytes=12,
    events={"reset-diverged": 2},
)


class FakeProgress:
    """What the renderer asks of Progress."""

    def __init__(self, lags: list[GroupLag]) -> None:
        self._lags = lags

    def group_lags(self) -> Iterator[GroupLag]:
        yield from self._lags


def _samples(
    snapshot: BrokerSnapshot, stats: BrokerStats | None = None, lags: list[GroupLag] | None = None
) -> dict[tuple[str, ...], float]:
    found = {}
    text = "".join(render(snapshot, stats or BrokerStats(0.0, 0), FakeProgress(lags or [])))  # type: ignore[arg-type]
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[(sample.name, *(sample.labels[name] for name in LABELS if name in sample.labels))] = sample.value
    return found


def test_a_snapshot_reads_back() -> None:
    """Counters, lags, positions and single numbers under their names."""
    waits = WaitHistogram()
    for seconds in (0.0001, 0.001, 9.0):
        waits.observe(seconds)
    stats = BrokerStats(0.0, 0)
    stats.put_flow("T").add(3, 300)
    stats.get_flow("T", "g").add(2, 200)
    stats.pulls_found = 8
    snapshot = BrokerSnapshot(
        cluster="C", broker="b", role="SYNC_MASTER", appended=1000, flushed=900, pulls_parked=4,
        server=ServerStatus(failures=5), delay_progress={1: (2, 8)}, ha=HA, ack_waits=waits,
    )  # fmt: skip
    samples = _samples(snapshot, stats, [GroupLag("T", "g", 1)])
    assert samples["tandemq_broker", "C", "b", "SYNC_MASTER"] == 1
    assert samples["tandemq_messages_in_total", "T"] == 3
    assert samples["tandemq_bytes_out_total", "T", "g"] == 200
    assert samples["tandemq_consumer_lag_messages", "T", "g"] == 1
    assert samples["tandemq_log_offset_bytes", "flushed"] == 900
    assert samples[("tandemq_parked_pulls",)] == 4
    assert samples[("tandemq_requests_failed_total",)] == 5
    assert samples[("tandemq_pulls_found_total",)] == 8
    assert samples["tandemq_delayed_messages", "1"] == 6
    assert samples["tandemq_replica_offset_bytes", "received", "s1"] == 950
    assert samples["tandemq_replica_offset_bytes", "durable", "s1"] == 900
    assert samples["tandemq_replica_offset_bytes", "applied", "s1"] == 800
    assert samples["tandemq_replica_in_sync", "s1"] == 1
    assert samples["tandemq_replica_in_sync", "s2"] == 0
    assert samples["tandemq_replica_lag_bytes", "s2"] == 300, "kept while it is a member, so that the alert can fire"
    assert samples["tandemq_replica_lag_seconds", "s2"] == 9
    assert ("tandemq_replica_lag_bytes", "scanner") not in samples, "nobody misses it"
    assert samples["tandemq_replica_lag_bytes", "s1"] == 50
    assert samples["tandemq_replica_lag_seconds", "s1"] == 1.5
    assert samples[("tandemq_ha_in_sync_replicas",)] == 1
    assert samples[("tandemq_ha_epoch",)] == 7
    assert samples[("tandemq_ha_writable",)] == 0
    assert samples[("tandemq_ha_cut_bytes_total",)] == 12
    assert samples["tandemq_ha_events_total", "reset-diverged"] == 2
    assert samples["tandemq_ha_state", "master", "open", ""] == 1
    assert samples["tandemq_ack_wait_seconds_bucket", "0.001"] == 2
    assert samples["tandemq_ack_wait_seconds_bucket", "+Inf"] == 3
    assert samples[("tandemq_ack_wait_seconds_count",)] == 3
    assert samples[("tandemq_series_dropped",)] == 0


def test_series_are_bounded() -> None:
    """The busiest topics are shown, and how many are not."""
    stats = BrokerStats(0.0, 0)
    for n in range(SERIES_MAX + 10):
        stats.put_flow(f"T{n}").add(n, n)
    samples = _samples(BrokerSnapshot(cluster="C", broker="b", role="SLAVE"), stats)
    assert samples[("tandemq_series_dropped",)] == 10
    assert ("tandemq_messages_in_total", "T0") not in samples
    assert samples["tandemq_messages_in_total", f"T{SERIES_MAX + 9}"] == SERIES_MAX + 9
