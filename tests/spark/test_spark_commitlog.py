"""`format("rocketmq-commitlog")` in a real Spark session: discovery, columns, orders, streams, damage."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from tandemq.spark.runtime.query_start import started

pytestmark = pytest.mark.spark
FORMAT = "rocketmq-commitlog"


def load(spark: Any, path: Path | str, **options: str) -> Any:
    return spark.read.format(FORMAT).options(**options).load(str(path))


def test_spark_finds_the_format_by_itself_and_reads_a_golden_store(spark: Any, golden_533: Path) -> None:
    """No registration, no broker: every user message of the store."""
    df = load(spark, golden_533 / "slave-clean")
    counts = {row["topic"]: row["count"] for row in df.groupBy("topic").count().collect()}
    assert {"plain", "large", "batch", "delay", "tx"} <= set(counts)
    assert not any(topic.startswith("RMQ_SYS") or topic == "SCHEDULE_TOPIC_XXXX" for topic in counts)
    everything = load(spark, golden_533 / "slave-clean", includeSystemTopics="true")
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"} <= {
        r["topic"] for r in everything.select("topic").collect()
    }


def test_queue_and_physical_order_hold_the_same_messages(spark: Any, golden_533: Path) -> None:
    """Each queue in its order, without holes."""
    physical = load(spark, golden_533 / "master-clean", subscribe="plain,batch", minPartitions="5")
    queue = load(
        spark, golden_533 / "master-clean", subscribe="plain,batch", order="queue", maxRecordsPerPartition="37"
    )
    key = ("topic", "queue_id", "queue_offset", "physical_offset", "msg_id", "body")
    assert sorted(map(tuple, physical.select(*key).collect())) == sorted(map(tuple, queue.select(*key).collect()))
    assert queue.rdd.getNumPartitions() > 5


def test_a_user_schema_selects_columns(spark: Any, golden_533: Path) -> None:
    """Only those are built; body may be text; an unknown one is named."""
    df = spark.read.format(FORMAT).schema("queue_offset BIGINT, tags STRING").load(str(golden_533 / "slave-clean"))
    assert df.columns == ["queue_offset", "tags"]
    assert df.count() > 0
    with pytest.raises(PySparkException, match="'offset': no message has it"):
        spark.read.format(FORMAT).schema("offset BIGINT").load(str(golden_533 / "slave-clean")).count()


def test_columns_are_chosen_by_name_and_spark_knows_which_are_never_null(spark: Any, golden_533: Path) -> None:
    """The option has the types that a schema would have to spell out; a damaged record may lack anything."""
    store = golden_533 / "slave-clean"
    chosen = load(spark, store, columns="body, tags")
    assert [(f.name, f.nullable) for f in chosen.schema.fields] == [("body", False), ("tags", True)]
    whole = load(spark, store)
    assert Counter(map(tuple, chosen.collect())) == Counter(map(tuple, whole.select("body", "tags").collect()))
    assert {f.name for f in whole.schema.fields if f.nullable} == {"keys", "tags"}
    assert all(field.nullable for field in load(spark, store, mode="permissive").schema.fields)
    with pytest.raises(AnalysisException, match="columns: no message has 'offset'"):
        load(spark, store, columns="offset")


def test_wrong_options_fail_at_load_with_a_clear_sentence(spark: Any, golden_533: Path) -> None:
    """Batch and stream alike; Spark masks errors of streamReader(), so options are checked before."""
    for read in (lambda: spark.read, lambda: spark.readStream):
        with pytest.raises(AnalysisException, match="did you mean 'subscribe'"):
            read().format(FORMAT).option("subscripe", "x").load(str(golden_533 / "slave-clean"))
        with pytest.raises(AnalysisException, match="path: missing"):
            read().format(FORMAT).load()


def test_a_wrong_option_of_a_stream_with_a_schema_is_not_masked(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """With a user schema Spark never calls schema(), and an error in streamReader() becomes an UnboundLocalError."""
    reader = spark.readStream.format(FORMAT).schema("queue_offset BIGINT, offset INT").option("subscripe", "x")
    stream = reader.load(str(golden_533 / "slave-clean"))
    with pytest.raises(PySparkException, match="did you mean 'subscribe'"):
        started(stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)))


def test_tags_keys_and_times_filter(spark: Any, golden_533: Path) -> None:
    """The same rows as filtering afterwards."""
    path = golden_533 / "slave-clean"
    plain = load(spark, path, subscribe="plain").select("tags", "keys", "store_timestamp", "physical_offset").collect()
    for order in ("physical", "queue"):
        tagged = (
            load(spark, path, subscribe="plain", tags="tag1 || tag2", order=order).select("physical_offset").collect()
        )
        assert sorted(r[0] for r in tagged) == sorted(
            r["physical_offset"] for r in plain if r["tags"] in ("tag1", "tag2")
        )
    keyed = load(spark, path, subscribe="plain", keys="key8").select("physical_offset").collect()
    assert sorted(r[0] for r in keyed) == sorted(
        r["physical_offset"] for r in plain if "key8" in (r["keys"] or "").split()
    )
    times = sorted(r["store_timestamp"] for r in plain)
    from_ms = round(times[len(times) // 2].timestamp() * 1000)
    for order in ("physical", "queue"):
        later = load(spark, path, subscribe="plain", startingTimestamp=str(from_ms), order=order)
        assert later.count() == sum(round(t.timestamp() * 1000) >= from_ms for t in times)


def test_filtering_one_dataframe_never_changes_another(spark: Any, golden_533: Path) -> None:
    """Filter push-down gives wrong rows in Spark 4: these readers must not take part in it."""
    df = load(spark, golden_533 / "slave-clean", subscribe="plain")
    total = df.count()
    one, other = df.filter("queue_id = 1").count(), df.filter("queue_id <> 1").count()
    assert one + other == total == df.count()
    union = df.filter("queue_id = 0").union(df.filter("queue_id = 1"))
    assert {row[0] for row in union.select("queue_id").distinct().collect()} == {0, 1}


def test_a_limit_kills_workers_and_changes_no_answer(spark: Any, golden_533: Path) -> None:
    """A LIMIT leaves workers in mid-write; the next query of the session gets all rows, from new ones if need be."""
    df = load(spark, golden_533 / "slave-clean", subscribe="plain", rowsPerBatch="5")
    total = len({row[0] for row in load(spark, golden_533 / "slave-clean", subscribe="plain").select("keys").collect()})
    for _ in range(3):
        assert len(df.limit(3).collect()) == 3
        assert len({row[0] for row in df.select("keys").collect()}) == total


def damage(path: Path, tmp_path: Path) -> tuple[Path, int]:
    """A copy of a store with one record's size destroyed."""
    copy = tmp_path / "damaged"
    shutil.copytree(path, copy)
    segment = sorted((copy / "commitlog").iterdir())[1]
    with open(segment, "r+b") as file:
        file.write(b"\x00\x00\x00\x05")
    return copy, int(segment.name)


def test_damage_is_an_error_or_a_row(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """Fail-fast names file and offset; permissive skips, and counts in `_corrupt_record`."""
    copy, offset = damage(golden_533 / "slave-clean", tmp_path)
    with pytest.raises(PySparkException, match=f"{offset:020d}, physical offset {offset}"):
        load(spark, copy).count()
    schema = "physical_offset BIGINT, _corrupt_record STRING"
    df = spark.read.format(FORMAT).schema(schema).option("mode", "permissive").load(str(copy))
    rows = df.collect()
    whole = load(spark, golden_533 / "slave-clean").count()
    assert [row["physical_offset"] for row in rows if row["_corrupt_record"]] == [offset]
    assert len([row for row in rows if not row["_corrupt_record"]]) == whole - 1


def run_stream(spark: Any, source: Any, checkpoint: Path, name: str) -> list[Any]:
    """All rows of one availableNow run."""
    rows: list[Any] = []
    writer = source.writeStream.foreachBatch(lambda df, _: rows.extend(df.collect()))
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert started(writer).awaitTermination(120)
    return rows


@pytest.mark.parametrize("order", ["physical", "queue"])
def test_available_now_reads_all_in_limited_batches_and_resumes(
    spark: Any, golden_533: Path, tmp_path: Path, order: str
) -> None:
    """Several batches, nothing twice; a second run finds nothing new, then only what was appended."""
    store = tmp_path / "store"
    shutil.copytree(golden_533 / "slave-clean", store)
    hidden = tmp_path / "later"
    segments = sorted((store / "commitlog").iterdir())
    shutil.move(segments[-1], hidden)  # the last segment comes later

    def source() -> Any:
        reader = spark.readStream.format(FORMAT).option("startingOffsets", "earliest").option("order", order)
        return reader.option("maxBytesPerTrigger", "200000").load(str(store)).select("physical_offset")

    first = run_stream(spark, source(), tmp_path / "checkpoint", "a")
    assert run_stream(spark, source(), tmp_path / "checkpoint", "b") == []
    shutil.move(hidden, segments[-1])
    second = run_stream(spark, source(), tmp_path / "checkpoint", "c")
    offsets = sorted(row[0] for row in first + second)
    everything = load(spark, golden_533 / "slave-clean").select("physical_offset").collect()
    assert offsets == sorted(row[0] for row in everything)
    batches = list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    assert len(batches) > 3


def test_a_stream_stops_at_the_confirmed_offset(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """A replica of ours is followed only as far as nothing can vanish; readUpTo=written shows the rest."""
    store = tmp_path / "store"
    shutil.copytree(golden_533 / "slave-clean", store)
    everything = sorted(r[0] for r in load(spark, store).select("physical_offset").collect())
    confirmed = everything[len(everything) // 2]
    (store / "replica.json").write_text(f'{{"content": {{"confirmed": {confirmed}}}, "crc": 0}}')
    (store / "checkpoint").write_bytes(bytes(4096))
    source = spark.readStream.format(FORMAT).option("startingOffsets", "earliest").load(str(store))
    rows = run_stream(spark, source.select("physical_offset"), tmp_path / "c", "x")
    assert sorted(row[0] for row in rows) == [offset for offset in everything if offset < confirmed]
    assert load(spark, store, readUpTo="written").count() == len(everything)


def test_a_session_of_ours_reads_columns_without_a_check_of_every_access(spark: Any) -> None:
    """An environment variable that Arrow reads once: it must be there before the JVM."""
    arrow = spark.sparkContext._jvm.org.apache.arrow.memory
    assert not arrow.BoundsChecking.BOUNDS_CHECKING_ENABLED
    assert spark.conf.get("spark.executorEnv.ARROW_ENABLE_UNSAFE_MEMORY_ACCESS") == "true"
