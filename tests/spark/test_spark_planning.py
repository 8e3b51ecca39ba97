"""Columns and filters without options: queries read less and answer the same, however often a DataFrame is used."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.spark.test_spark_sql import table, topic

__all__ = ["topic"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CONDITIONS = [
    "topic = 'plain'",
    "topic IN ('plain', 'nowhere') AND queue_id = 0",
    "'plain' = topic AND queue_offset >= 3 AND 9 > queue_offset",
    "tags IS NOT NULL AND tags <> 'x'",
    "tags = (SELECT max(tags) FROM seen)",
    "keys = (SELECT min(keys) FROM seen)",
    "store_timestamp > (SELECT min(store_timestamp) FROM seen)",
    "store_timestamp <= timestamp_millis(1)",
    "topic = 'plain' OR queue_id = 1",
    "topic = 'plain' AND (queue_id = 1 OR tags IS NULL)",
    "broker = 'slave-clean' AND topic LIKE 'p%'",
    "NOT (topic = 'plain')",
    "topic = 'plain' AND rand() >= 0",
    "topic = NULL",
]


@pytest.fixture(scope="module")
def store(golden_533: Path) -> str:
    return str(golden_533 / "slave-clean")


def log(spark: Any, store: str, **options: str) -> Any:
    return spark.read.format("rocketmq-commitlog").options(**options).load(store)


def scans(df: Any) -> list[str]:
    plan = df._jdf.queryExecution().optimizedPlan().toString()
    return [line for line in plan.splitlines() if "RelationV2" in line or "rocketmq" in line]


@pytest.mark.parametrize("order", ["physical", "queue"])
def test_every_condition_gives_the_rows_that_spark_alone_finds(spark: Any, store: str, order: str) -> None:
    """The same rows as from a copy of the messages in memory, which knows nothing of us."""
    options = {"order": order, "includeSystemTopics": "true"}
    df = log(spark, store, **options)
    copy = spark.createDataFrame(df.drop("properties").collect(), df.drop("properties").schema)
    copy.createOrReplaceTempView("seen")
    assert copy.count() > 1000
    for condition in CONDITIONS:
        found = df.where(condition).select("physical_offset", "tags").collect()
        expected = copy.where(condition).select("physical_offset", "tags").collect()
        assert sorted(found) == sorted(expected), condition
        assert df.where(condition).count() == len(expected), condition


def test_a_dataframe_can_be_used_again_in_any_way(spark: Any, store: str) -> None:
    """Where Spark's own push-down goes wrong: a filter stays with the DataFrame, and with both sides of a join."""
    df = log(spark, store)
    everything = df.count()
    plain = df.where("topic = 'plain'").count()
    assert 0 < plain < everything
    assert df.count() == everything == len(df.select("msg_id").collect())
    joined = df.where("topic = 'plain'").alias("a").join(df.where("topic <> 'plain'").alias("b"), "broker")
    assert joined.where("a.queue_offset = 0 AND b.queue_offset = 0").select("a.topic").distinct().collect()[0][0] == (
        "plain"
    )
    both = df.where("topic = 'plain'").union(df.where("topic <> 'plain'"))
    assert both.count() == everything
    assert df.where("queue_id = 0").select("body").intersect(df.select("body")).count() > 0
    filtered = df.where("topic = 'plain'").cache()
    assert filtered.count() == filtered.select("keys").count() == plain
    assert df.count() == everything
    filtered.unpersist()


def test_only_what_a_query_uses_is_read(spark: Any, store: str) -> None:
    df = log(spark, store)
    assert len(scans(df.select("keys", "body"))) == 1
    for query, columns in (
        (df.select("keys"), ["keys"]),
        (df.where("tags = 'a'").select("keys"), ["keys", "tags"]),
        (df.groupBy().count(), ["queue_offset"]),
        (df.groupBy("topic").agg({"body_crc": "sum"}), ["topic", "body_crc"]),
        (df, df.columns),
    ):
        (line,) = scans(query)
        read = [part.split("#")[0].strip(" [") for part in line[line.index("[") : line.index("]")].split(",")]
        assert sorted(read) == sorted(columns), line


def test_registering_is_all_that_a_plain_session_needs(spark: Any, store: str) -> None:
    """A session that Spark made: until then it reads all columns."""
    from pyspark_tandemq import register

    def columns(session: Any) -> str:
        (line,) = scans(log(session, store).select("keys"))
        return line[line.index("[") : line.index("]")]

    plain = spark.newSession()
    assert "body" in columns(plain)
    register(plain)
    assert re.fullmatch(r"\[keys#\d+", columns(plain))


def test_a_catalogs_table_keeps_its_options_when_its_first_column_is_not_read(spark: Any, topic: Any) -> None:
    table(spark, "pruned", "rocketmq", nameserver=topic.nameserver, subscribe="t")
    assert spark.sql("SELECT count(*) FROM pruned").first()[0] == 300
    assert spark.sql("SELECT count(*) FROM pruned WHERE tags = 'red' AND keys IN ('k0', 'k1', 'k3')").first()[0] == 2
    joined = "SELECT count(*) FROM pruned a JOIN pruned b ON a.keys = b.keys WHERE a.tags = 'red' AND b.queue_id >= 0"
    assert spark.sql(joined).first()[0] == 100


def test_live_topics_by_pattern_offset_and_time(spark: Any, topic: Any) -> None:
    def df(**options: str) -> Any:
        return spark.read.format("rocketmq").option("nameserver", topic.nameserver).options(**options).load()

    pattern = df(subscribePattern=".*")
    assert pattern.where("topic = 't'").count() == 300
    assert pattern.where("topic = 'nowhere'").count() == 0
    assert pattern.where("topic = 't' AND tags IN ('red', 'blue')").count() == 200
    assert pattern.count() >= 300
    one = df(subscribe="t")
    assert one.where("queue_offset < 10").select("queue_offset").count() == 20
    last = one.selectExpr("max(store_timestamp)").first()[0]
    assert one.where(one.store_timestamp > last).count() == 0
    assert one.where(one.store_timestamp <= last).count() == 300
    kafka = df(subscribe="t", schema="kafka")
    assert kafka.where("offset >= 5 AND offset < 7").select("value").count() == 4
    assert kafka.select("key").distinct().count() == 300


def test_a_damaged_place_is_a_row_whatever_is_selected(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(golden_533 / "slave-clean", tmp_path / "hurt")
    segment = min((tmp_path / "hurt" / "commitlog").iterdir())
    with open(segment, "r+b") as file:
        file.seek(5)
        file.write(bytes([1, 2, 3]))
    df = log(spark, str(tmp_path / "hurt"), mode="permissive", columns="topic,body,_corrupt_record")
    assert df.count() == len(df.collect())
    assert df.where("_corrupt_record IS NOT NULL").count() >= 1
