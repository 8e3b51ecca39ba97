"""As people write Spark: SQL tables, Kafka's columns, filters of the broker; with live brokers and a real session."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.sink_tasks import numbered, sink, write

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def topic(cluster: Any) -> Any:
    """A cluster with 300 messages in two queues of the topic `t`."""
    broker = cluster.add_broker(properties={"enablePropertyFilter": "true"})
    cluster.create_topic(broker, "t", 2)
    rows = numbered(
        300,
        keys=[f"k{n}" for n in range(300)],
        tags=[("red", "green", "blue")[n % 3] for n in range(300)],
        properties=pa.array([[("n", str(n))] for n in range(300)], pa.map_(pa.string(), pa.string())),
    )
    write(sink(cluster), rows)
    return cluster


def table(spark: Any, name: str, using: str, **options: str) -> None:
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    listed = ", ".join(f"{key} '{value}'" for key, value in options.items())
    spark.sql(f"CREATE TABLE {name} USING {using} OPTIONS ({listed})")


def test_a_table_keeps_its_options(spark: Any, topic: Any) -> None:
    """Spark hands the options of a table to nobody when it is read; ours are in its schema."""
    table(spark, "orders", "rocketmq", nameserver=topic.nameserver, subscribe="t")
    assert spark.sql("SELECT count(*), count(DISTINCT body) FROM orders WHERE tags = 'red'").first()[:] == (100, 100)
    assert spark.table("orders").count() == 300
    assert spark.sql("SELECT count(*) FROM orders a JOIN orders b ON a.keys = b.keys").first()[0] == 300
    found = spark.sql("SELECT count(*) FROM orders WITH (tags = 'blue')").first()[0]
    assert found == 100
    spark.sql("CREATE OR REPLACE TEMP VIEW red AS SELECT * FROM orders WHERE tags = 'red'")
    assert spark.sql("SELECT count(*) FROM red").first()[0] == 100
    assert spark.readStream.table("orders").isStreaming
    described = {row[0] for row in spark.sql("DESCRIBE orders").collect()}
    assert {"topic", "body", "keys"} <= described


def test_a_secret_is_not_in_the_schema_of_a_table(spark: Any, topic: Any) -> None:
    table(spark, "guarded", "rocketmq", nameserver=topic.nameserver, subscribe="t", accessKey="a", secretKey="hush")
    assert "hush" not in spark.table("guarded").schema.json()
    assert topic.nameserver in spark.table("guarded").schema.json()


def test_what_is_read_without_a_table_has_a_plain_schema(spark: Any, topic: Any) -> None:
    df = spark.read.format("rocketmq").option("nameserver", topic.nameserver).option("subscribe", "t").load()
    assert all(not field.metadata for field in df.schema)


def test_rows_are_inserted_into_a_table_by_its_own_options(spark: Any, topic: Any) -> None:
    """Reading takes `topic` for `subscribe`; an INSERT gives the columns it wants, and may give options."""
    table(spark, "both", "rocketmq", nameserver=topic.nameserver, topic="t", copies="1")
    assert spark.table("both").count() == 300
    spark.sql("INSERT INTO both (body, keys) VALUES (X'61', 'k')")
    spark.sql("INSERT INTO both WITH (copies = '1') (keys, body, queue_id) SELECT 'k', X'62', 1")
    spark.sql("SELECT X'63' AS body, 'k' AS keys").writeTo("both").option("compression", "zstd").append()
    found = spark.sql("SELECT cast(body AS STRING), properties['n'] FROM both WHERE keys = 'k' ORDER BY 1").collect()
    assert [tuple(row) for row in found] == [("a", None), ("b", None), ("c", None)]
    table(spark, "read_only", "rocketmq", nameserver=topic.nameserver, subscribe="t", columns="body")
    with pytest.raises(Exception, match="This table was made for reading"):
        spark.sql("INSERT INTO read_only VALUES (X'61')")


def test_files_have_a_name_that_sql_can_spell(spark: Any, golden_533: Path) -> None:
    path = str(golden_533 / "slave-clean")
    table(spark, "log", "rocketmq_commitlog", path=path)
    expected = spark.read.format("rocketmq-commitlog").load(path).count()
    assert spark.sql("SELECT count(*) FROM log").first()[0] == expected > 0
    spark.sql("DROP TABLE IF EXISTS located")
    spark.sql(f"CREATE TABLE located USING rocketmq_commitlog LOCATION '{path}'")
    assert spark.sql("SELECT count(*) FROM located").first()[0] == expected
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING rocketmq_commitlog OPTIONS (path '{path}')")
    assert spark.sql("SELECT count(*) FROM seen").first()[0] == expected


def test_tags_and_sql92_are_filtered_by_the_broker(spark: Any, topic: Any) -> None:
    reader = spark.read.format("rocketmq").option("nameserver", topic.nameserver).option("subscribe", "t")
    assert reader.option("sql", "n >= 290 AND TAGS = 'red'").load().count() == 3
    plain = spark.read.format("rocketmq").option("nameserver", topic.nameserver).option("subscribe", "t")
    assert plain.option("tags", "red || blue").load().count() == 200


def test_a_kafka_job_is_ported_by_its_options(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """Kafka's columns, out and in again: keys and headers are bytes, equal keys go to one partition."""
    brokers = [cluster.add_broker(name) for name in ("broker-a", "broker-b")]
    for broker in brokers:
        cluster.create_topic(broker, "k", 2)
    rows = [
        (
            bytes([200, n % 5]) if n % 2 else f"user{n % 5}".encode(),
            f"v{n}".encode(),
            [("h", bytes([n, 255])), ("t", b"x")],
        )
        for n in range(100)
    ]
    ddl = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    options = {"nameserver": cluster.nameserver, "schema": "kafka"}
    df = spark.createDataFrame(rows, ddl)
    df.write.format("rocketmq").options(**options).option("topic", "k").mode("append").save()
    read = spark.read.format("rocketmq").options(**options).option("subscribe", "k").load()
    assert read.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    found = read.collect()
    assert sorted((bytes(r.key), bytes(r.value)) for r in found) == sorted((k, v) for k, v, _ in rows)
    by_value = {bytes(r.value): {h.key: bytes(h.value) for h in r.headers} for r in found}
    assert by_value[b"v7"] == {"h": bytes([7, 255]), "t": b"x"}
    partitions: dict[bytes, set[int]] = {}
    for row in found:
        partitions.setdefault(bytes(row.key), set()).add(row.partition)
    assert all(len(numbers) == 1 for numbers in partitions.values())
    assert {row.partition for row in found} <= {0, 1, 2, 3}
    assert {row.timestampType for row in found} == {1}
    for number in {row.partition for row in found}:
        offsets = sorted(row.offset for row in found if row.partition == number)
        assert offsets == list(range(len(offsets)))
    some = max(row.partition for row in found)
    one = spark.read.format("rocketmq").options(**options).option("assign", f'{{"k": [{some}]}}').load()
    assert {row.partition for row in one.collect()} == {some}
    chosen = spark.createDataFrame([(b"p3", 3)], "value BINARY, partition INT")
    chosen.write.format("rocketmq").options(**options).option("topic", "k").mode("append").save()
    assert [row.partition for row in read.sparkSession.read.format("rocketmq").options(**options)
            .option("subscribe", "k").load().where("value = X'7033'").collect()] == [3]  # fmt: skip


def test_headers_that_would_vanish_are_refused(spark: Any, cluster: Any) -> None:
    cluster.create_topic(cluster.add_broker(), "k", 1)
    ddl = "value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    for headers, message in (
        ([("KEYS", b"a")], "RocketMQ sets itself"),
        ([("a", b"1"), ("a", b"2")], "is there twice"),
    ):
        df = spark.createDataFrame([(b"v", headers)], ddl)
        writer = df.write.format("rocketmq").option("nameserver", cluster.nameserver).option("topic", "k")
        with pytest.raises(Exception, match=message):
            writer.option("schema", "kafka").mode("append").save()
