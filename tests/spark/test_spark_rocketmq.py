"""Against a real RocketMQ, a master and a slave: batch, stream and sink; filters; exactly once by transactions.

Version 5.5.0, or the newest of TANDEMQ_PEER_VERSIONS if that is set.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.peers import servers, tools, wire
from tests.peers.programs import JAVA_VERSIONS

from tandemq.spark.runtime.query_start import started
from tandemq.testing.waiting import wait_until

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
NEWEST = max(JAVA_VERSIONS, key=lambda version: tuple(map(int, version.split("."))))
VERSION = NEWEST if "TANDEMQ_PEER_VERSIONS" in os.environ else "5.5.0"


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Servers]:
    directory = tmp_path_factory.mktemp("rocketmq")
    try:
        with servers.rocketmq(VERSION, directory, {"slaveReadEnable": "true"}, slave=True, heap="512m") as running:
            yield running
    except tools.Missing as reason:
        pytest.skip(str(reason))


def topic(rocketmq: servers.Servers, name: str, queues: int = 2) -> str:
    wire.create_topic(rocketmq.broker, name, queues)
    servers.await_route(rocketmq, name)
    return name


def numbers(spark: Any, count: int) -> Any:
    return spark.range(0, count, 1, 2).selectExpr(
        "cast(id as string) as body", "concat('k', id) as keys", "'a' as tags"
    )


def save(df: Any, rocketmq: servers.Servers, name: str, **options: str) -> None:
    writer = df.write.format("rocketmq").option("nameserver", rocketmq.namesrv).option("topic", name)
    writer.options(**options).mode("append").save()


def bodies(spark: Any, rocketmq: servers.Servers, name: str, **options: str) -> list[int]:
    reader = spark.read.format("rocketmq").option("nameserver", rocketmq.namesrv).option("subscribe", name)
    df = reader.options(**options).load().selectExpr("cast(body as string)")
    return sorted(int(row[0]) for row in df.collect())


def test_what_is_written_is_read_from_master_and_slave(spark: Any, rocketmq: servers.Servers) -> None:
    """Batches of the sink are RocketMQ batches; every member of the group serves the reads."""
    name = topic(rocketmq, "spark_batch", 4)
    save(numbers(spark, 2000), rocketmq, name, batchBytes="20000")
    assert bodies(spark, rocketmq, name, readFrom="master") == list(range(2000))
    wait_until(lambda: len(bodies(spark, rocketmq, name, readFrom="slave")) == 2000)
    assert bodies(spark, rocketmq, name, readFrom="any", tags="a", minPartitions="6") == list(range(2000))
    assert bodies(spark, rocketmq, name, keys="k7") == [7]
    df = spark.read.format("rocketmq").option("nameserver", rocketmq.namesrv).option("subscribe", name).load()
    assert df.where("tags = 'a' AND queue_offset < 3").count() == 12
    assert (df.where("tags = 'b'").count(), df.where("keys IN ('k7', 'k8')").count(), df.count()) == (0, 2, 2000)
    # A replica that is named is read as far as it is, and a slave of RocketMQ learns of topics every ten seconds.
    wait_until(lambda: bodies(spark, rocketmq, name, readFrom=rocketmq.slave) == list(range(2000)))


def test_a_stream_reads_limited_batches_and_resumes(spark: Any, rocketmq: servers.Servers, tmp_path: Path) -> None:
    """Offsets of the checkpoint are exact against upstream too."""
    name = topic(rocketmq, "spark_stream")
    save(numbers(spark, 500), rocketmq, name)
    rows: list[int] = []

    def run() -> None:
        reader = spark.readStream.format("rocketmq").option("nameserver", rocketmq.namesrv)
        reader = reader.option("subscribe", name).option("startingOffsets", "earliest").option("readFrom", "master")
        df = reader.option("maxOffsetsPerTrigger", "200").load().selectExpr("cast(body as string)")
        writer = df.writeStream.foreachBatch(lambda b, _: rows.extend(int(r[0]) for r in b.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        assert started(writer).awaitTermination(200)

    run()
    assert sorted(rows) == list(range(500))
    save(numbers(spark, 100), rocketmq, name)
    rows.clear()
    run()
    assert sorted(rows) == list(range(100))


def test_exactly_once_by_transactions(spark: Any, rocketmq: servers.Servers) -> None:
    """The broker can't refuse repeats, so the sink uses half messages; the same write again adds nothing."""
    name = topic(rocketmq, "spark_exact")
    topic(rocketmq, "TANDEMQ_SPARK_DECISIONS", 1)
    for _ in range(2):
        save(numbers(spark, 200), rocketmq, name, delivery="exactly_once", sinkId="one-write")
        wait_until(lambda: len(bodies(spark, rocketmq, name, readFrom="master")) >= 200)
    assert bodies(spark, rocketmq, name, readFrom="master") == list(range(200))
