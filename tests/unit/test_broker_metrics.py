"""The metrics text: what Prometheus' own parser reads back."""

from prometheus_client.parser import text_string_to_metric_families

from tandemq.broker.metrics import SERIES_MAX, BrokerSnapshot, GroupNumbers, LagNumbers, TopicNumbers, render
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
        ReplicaStatus("s2", "", "", "away", "", 0, 0, 0, 0, 0, 0.0, False, "gone", "connection-lost", "wait"),
    ),
    cut_bytes=12,
    events={"reset-diverged": 2},
)


def _samples(snapshot: BrokerSnapshot) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(render(snapshot).decode()):
        for sample in family.samples:
            found[(sample.name, *(sample.labels[name] for name in LABELS if name in sample.labels))] = sample.value
    return found


def test_a_snapshot_reads_back() -> None:
    """Counters, lags, positions and single numbers under their names."""
    waits = WaitHistogram()
    for seconds in (0.0001, 0.001, 9.0):
        waits.observe(seconds)
    samples = _samples(
        BrokerSnapshot(
            cluster="C",
            broker="b",
            role="SYNC_MASTER",
            topics=[TopicNumbers(topic="T", messages=3, bytes=300)],
            groups=[GroupNumbers(topic="T", group="g", messages=2, bytes=200)],
            lags=[LagNumbers(topic="T", group="g", behind=1)],
            log_offsets={"appended": 1000, "flushed": 900},
            gauges={"pulls_parked": ("Pulls that wait.", 4)},
            counters={"half_messages_discarded": ("Given up.", 5)},
            delayed={1: 6},
            ha=HA,
            is_writable=False,
            waits=waits,
        )
    )
    assert samples["tandemq_broker", "C", "b", "SYNC_MASTER"] == 1
    assert samples["tandemq_messages_in_total", "T"] == 3
    assert samples["tandemq_bytes_out_total", "T", "g"] == 200
    assert samples["tandemq_consumer_lag_messages", "T", "g"] == 1
    assert samples["tandemq_log_offset_bytes", "flushed"] == 900
    assert samples[("tandemq_pulls_parked",)] == 4
    assert samples[("tandemq_half_messages_discarded_total",)] == 5
    assert samples["tandemq_delayed_messages", "1"] == 6
    assert samples["tandemq_replica_offset_bytes", "received", "s1"] == 950
    assert samples["tandemq_replica_offset_bytes", "durable", "s1"] == 900
    assert samples["tandemq_replica_offset_bytes", "applied", "s1"] == 800
    assert samples["tandemq_replica_in_sync", "s1"] == 1
    assert samples["tandemq_replica_in_sync", "s2"] == 0
    assert ("tandemq_replica_lag_bytes", "s2") not in samples, "nothing is known of one that is away"
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
    topics = [TopicNumbers(topic=f"T{n}", messages=n, bytes=n) for n in range(SERIES_MAX + 10)]
    samples = _samples(BrokerSnapshot(cluster="C", broker="b", role="SLAVE", topics=topics))
    assert samples[("tandemq_series_dropped",)] == 10
    assert ("tandemq_messages_in_total", "T0") not in samples
    assert samples["tandemq_messages_in_total", f"T{SERIES_MAX + 9}"] == SERIES_MAX + 9
