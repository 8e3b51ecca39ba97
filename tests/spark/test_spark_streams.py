"""Streams as people run them: topics by pattern that appear later, state over a restart, lag, a chosen replica."""

from pathlib import Path
from typing import Any

import pytest
from tests.spark.test_spark_topics import numbers, run_now, save, wait_for

from tandemq.spark.lag import LagListener, lags_of
from tandemq.spark.runtime.query_start import started
from tandemq.testing.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def stream(spark: Any, cluster: Any, **options: str) -> Any:
    return spark.readStream.format("rocketmq").option("nameserver", cluster.nameserver).options(**options).load()


def test_a_topic_that_appears_while_a_stream_runs_is_read_from_its_beginning(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    broker = cluster.add_broker()
    cluster.create_topic(broker, "orders-a", 1)
    save(numbers(spark, 20), cluster, "orders-a")
    df = stream(spark, cluster, subscribePattern="orders-.*", startingOffsets="earliest").select("topic", "body")
    seen: list[tuple[str, bytes]] = []
    writer = df.writeStream.foreachBatch(lambda batch, _: seen.extend((r[0], bytes(r[1])) for r in batch.collect()))
    query = started(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="100 milliseconds"))
    try:
        wait_for(lambda: len(seen) >= 20, query)
        cluster.create_topic(broker, "orders-b", 2)
        cluster.create_topic(broker, "other", 1)
        save(numbers(spark, 30), cluster, "orders-b")
        save(numbers(spark, 5), cluster, "other")
        wait_for(lambda: len(seen) >= 50, query)
    finally:
        query.stop()
    assert sorted(topic for topic, _ in seen) == ["orders-a"] * 20 + ["orders-b"] * 30
    assert sorted(int(body) for topic, body in seen if topic == "orders-b") == list(range(30))


def test_state_goes_on_after_a_restart(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """Counts and a watermark's window over two runs of availableNow, in limited batches, are those of all messages."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "s", 2)
    counts: dict[str, int] = {}

    def keep(batch: Any, _: int) -> None:
        counts.update({row.tags: row["count"] for row in batch.collect()})

    def run() -> None:
        df = stream(spark, cluster, subscribe="s", startingOffsets="earliest", maxOffsetsPerTrigger="150")
        grouped = df.withWatermark("store_timestamp", "1 hour").groupBy("tags").count()
        writer = grouped.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
        assert started(writer.option("checkpointLocation", str(tmp_path / "c"))).awaitTermination(120)

    for round_ in (1, 2):
        save(numbers(spark, 300).selectExpr("*", "concat('g', cast(body as int) % 3) as tags"), cluster, "s")
        run()
        assert counts == {"g0": 100 * round_, "g1": 100 * round_, "g2": 100 * round_}


def test_a_listener_tells_the_lag_and_who_serves_the_reads(spark: Any, cluster: Any, tmp_path: Path) -> None:
    broker = cluster.add_broker()
    cluster.create_topic(broker, "l", 2)
    save(numbers(spark, 100), cluster, "l", batchBytes="2000")
    listener = LagListener()
    spark.streams.addListener(listener)
    try:
        df = stream(spark, cluster, subscribe="l", startingOffsets="earliest", maxOffsetsPerTrigger="40")
        seen: list[Any] = []
        writer = df.writeStream.queryName("lagging").foreachBatch(lambda batch, _: seen.append(batch.count()))
        query = started(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True))
        assert query.awaitTermination(120)
        assert sum(seen) == 100
        lags = [lag.metrics for progress in query.recentProgress for lag in lags_of(progress)]
        assert [m["avgOffsetsBehindLatest"] for m in lags[:3]] == [30.0, 10.0, 0.0]
        wait_until(lambda: [key for key in listener.latest if key[0] == "lagging"], "a lag of the query")
        (lag,) = (lag for lag in listener.latest.values() if lag.query == "lagging")
        assert lag.metrics["replicaBytesBehindMaster.broker-a"] == 0.0
    finally:
        spark.streams.removeListener(listener)
    assert run_now(stream(spark, cluster, subscribe="l", startingOffsets="latest").select("body"), tmp_path / "d") == []


def test_reads_come_from_the_address_that_is_named(spark: Any, cluster: Any) -> None:
    """A broker that no route names could be it: here it is the only one, found by what it says of itself."""
    from tandemq.client.blocking_cluster import BlockingCluster, ClusterAccess

    cluster.create_topic(cluster.add_broker(), "a", 1)
    save(numbers(spark, 10), cluster, "a")
    (group,) = BlockingCluster(ClusterAccess(namesrv=cluster.nameserver)).groups().values()
    reader = spark.read.format("rocketmq").option("nameserver", cluster.nameserver).option("subscribe", "a")
    assert reader.option("readFrom", str(group.master)).load().count() == 10
    with pytest.raises(Exception, match="readFrom"):
        reader.option("readFrom", "observer").load().count()
