"""`format("rocketmq")` in a real session against a live broker of ours: batch, streams, the sink and its guarantees."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tandemq.spark.runtime.query_start import started
from tandemq.testing.waiting import wait_until

pytestmark = pytest.mark.spark


def source(spark: Any, cluster: Any, topic: str, **options: str) -> Any:
    reader = spark.read.format("rocketmq").option("nameserver", cluster.nameserver).option("subscribe", topic)
    return reader.options(**options).load()


def stream(spark: Any, cluster: Any, topic: str, **options: str) -> Any:
    reader = spark.readStream.format("rocketmq").option("nameserver", cluster.nameserver).option("subscribe", topic)
    return reader.options(**options).load()


def numbers(spark: Any, count: int, partitions: int = 2) -> Any:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as body", "concat('k', id) as keys")


def save(df: Any, cluster: Any, topic: str, **options: str) -> None:
    writer = df.write.format("rocketmq").option("nameserver", cluster.nameserver).option("topic", topic)
    writer.options(**options).mode("append").save()


def bodies(df: Any) -> list[int]:
    return sorted(int(row[0]) for row in df.selectExpr("cast(body as string)").collect())


def run_now(df: Any, checkpoint: Path) -> list[Any]:
    """All rows of an availableNow run, and the number of batches with rows."""
    seen: list[list[Any]] = []

    def keep(batch: Any, number: int) -> None:
        rows = batch.collect()
        if rows:
            seen.append(rows)

    writer = df.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert started(writer).awaitTermination(120)
    return seen


def test_batch_write_and_read(spark: Any, cluster: Any) -> None:
    """Every row once; ranges by offsets JSON; tags by the broker's and the exact comparison; errors are sentences."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 4)
    assert bodies(source(spark, cluster, "t")) == []
    save(
        numbers(spark, 3000).selectExpr("*", "concat('g', cast(body as int) % 3) as tags"),
        cluster,
        "t",
        batchBytes="5000",
    )
    df = source(spark, cluster, "t", minPartitions="6")
    assert bodies(df) == list(range(3000))
    assert df.rdd.getNumPartitions() >= 6
    assert source(spark, cluster, "t", tags="g1").count() == 1000
    assert source(spark, cluster, "t", keys="k7,k8").count() == 2
    some = source(spark, cluster, "t", startingOffsets='{"t": {"0": 5}}', endingOffsets='{"t": {"0": 10}}')
    assert some.where("queue_id = 0").count() == 5
    with pytest.raises(PySparkException, match="no name server knows topic 'nowhere'"):
        source(spark, cluster, "nowhere").count()
    with pytest.raises(PySparkException, match="a topic can't be overwritten"):
        df.select("body").write.format("rocketmq").option("nameserver", cluster.nameserver).option("topic", "t").mode(
            "overwrite"
        ).save()
    with pytest.raises(PySparkException, match="column 'colour' can't be written"):
        save(numbers(spark, 1).selectExpr("body", "'red' as colour"), cluster, "t")
    save(numbers(spark, 10), cluster, "t")
    assert df.count() == 3010, "every query sees what is there now, as with Kafka's connector"
    assert len(bodies(df)) == 3010


def failing_once(batches: Iterator[Any]) -> Iterator[Any]:
    """Half of its rows, then an error on the first attempt: the sink has sent some of them by then."""
    from pyspark import TaskContext

    attempt = TaskContext.get().attemptNumber()
    for batch in batches:
        if attempt == 0:
            yield batch.slice(0, batch.num_rows // 2)
            raise RuntimeError("the first attempt of every task fails in mid-write")
        yield batch


def test_failing_tasks_repeat_keys_or_nothing(spark: Any, cluster: Any) -> None:
    """Every task dies once in mid-write: at least once repeats with equal keys, exactly once does not repeat."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "once", 2)
    cluster.create_topic(broker, "least", 2)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        rows = numbers(spark, 4000).mapInArrow(failing_once, "body STRING, keys STRING")
    save(rows, cluster, "once", delivery="exactly_once", batchBytes="2000")
    assert bodies(source(spark, cluster, "once")) == list(range(4000))
    save(rows, cluster, "least", batchBytes="2000")
    read = source(spark, cluster, "least")
    assert read.select("msg_id").distinct().count() == 4000
    assert set(bodies(read)) == set(range(4000))


def test_streams_read_limits_group_progress_and_new_queues(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """AvailableNow in limited batches; a restart reads only what is new, also in queues that were added meanwhile."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "s", 2)
    save(numbers(spark, 1000), cluster, "s", batchBytes="2000")

    def df() -> Any:
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
        return stream(spark, cluster, "s", groupId="GID_stream", commitGroupOffsets="true", **options)

    batches = run_now(df().selectExpr("cast(body as string)"), tmp_path / "c")
    assert len(batches) == 4
    assert sorted(int(row[0]) for rows in batches for row in rows) == list(range(1000))
    cluster.create_topic(broker, "s", 4)
    save(numbers(spark, 500), cluster, "s", batchBytes="2000")
    batches = run_now(df().selectExpr("cast(body as string)", "queue_id"), tmp_path / "c")
    assert sorted(int(row[0]) for rows in batches for row in rows) == list(range(500))
    assert {row[1] for rows in batches for row in rows} == {0, 1, 2, 3}
    assert run_now(df().select("body"), tmp_path / "c") == []
    from tandemq.spark.jobs.stats import committed_live

    options = {"nameserver": cluster.nameserver, "subscribe": "s"}
    committed = [row for row in committed_live(options) if row[0] == "GID_stream"]
    assert sum(row[3] for row in committed) == 1500


def test_a_streaming_sink_is_exact_when_batches_are_replayed(
    spark: Any, cluster: Any, golden_533: Path, tmp_path: Path
) -> None:
    """The last batch's commit is lost, so Spark writes it again: the broker has it already."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "sink", 3)

    def run() -> None:
        reader = spark.readStream.format("rocketmq-commitlog").option("startingOffsets", "earliest")
        df = (
            reader.option("maxBytesPerTrigger", "300000")
            .option("subscribe", "plain")
            .load(str(golden_533 / "slave-clean"))
        )
        writer = df.select("body", "keys", "tags", "properties").writeStream.format("rocketmq")
        writer = (
            writer.option("nameserver", cluster.nameserver).option("topic", "sink").option("delivery", "exactly_once")
        )
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        assert started(writer).awaitTermination(120)

    run()
    for _ in range(2):
        commits = sorted((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
        commits[-1].unlink()
        for crc in (tmp_path / "c" / "commits").glob(".*crc"):
            crc.unlink()
        run()
    expected = (
        spark.read.format("rocketmq-commitlog").option("subscribe", "plain").load(str(golden_533 / "slave-clean"))
    )
    key = ("body", "keys", "tags")
    found = source(spark, cluster, "sink").select(*key).collect()
    assert sorted(map(tuple, found), key=str) == sorted(map(tuple, expected.select(*key).collect()), key=str)


def test_a_running_stream_reports_its_lag_and_survives_a_broker_restart(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    """latest starts after what is there; the broker goes away in mid-query and comes back."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "live", 1)
    save(numbers(spark, 100), cluster, "live")
    rows: list[int] = []
    df = stream(spark, cluster, "live", retries="20", retryIntervalMs="200").selectExpr("cast(body as string)")
    writer = df.writeStream.foreachBatch(lambda batch, _: rows.extend(int(r[0]) for r in batch.collect()))
    query = started(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="200 milliseconds"))
    try:
        save(numbers(spark, 50), cluster, "live")
        wait_for(lambda: len(rows) >= 50, query)
        cluster.restart(broker)
        save(numbers(spark, 30), cluster, "live", retries="20", retryIntervalMs="200")
        wait_for(lambda: len(rows) >= 80, query)
        assert sorted(rows) == sorted([*range(50), *range(30)])
        assert '"q"' in str(query.lastProgress["sources"][0]["latestOffset"]).replace("'", '"')
    finally:
        query.stop()


def wait_for(condition: Any, query: Any, seconds: float = 90.0) -> None:
    """Until it is true; a query that died says why, one that hangs says what it is doing."""

    def true_and_alive() -> Any:
        found = condition()
        assert found or query.isActive, f"the query ended: {query.exception()}"
        return found

    wait_until(true_and_alive, lambda: f"the query: {query.status}, {query.lastProgress}", seconds=seconds)


def test_a_broken_sibling_plugin_would_hide_ours() -> None:
    """Any pyspark_* module that raises on import hides all: ours must import without the spark extra."""
    import subprocess
    import sys

    package = Path(__file__).parent.parent.parent / "src"
    for module in ("pyspark_tandemq", "pyspark_tandemq_commitlog"):
        code = (
            "import sys\n"
            "for name in ('pyspark', 'pyarrow', 'numpy'): sys.modules[name] = None\n"
            f"sys.path.insert(0, {str(package)!r})\n"
            f"import {module}\nassert not hasattr({module}, 'DefaultSource')\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
