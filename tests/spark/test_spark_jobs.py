"""The jobs in a real session: archive, replay, audit, reindex, stats."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tandemq.backup.restore import restore
from tandemq.backup.take import back_up
from tandemq.backup.target import DirectoryTarget
from tandemq.clock import SystemClock
from tandemq.errors import ConfigError
from tandemq.spark.jobs.archive import ArchivePlan, archive
from tandemq.spark.jobs.audit import audit
from tandemq.spark.jobs.reindex import reindex
from tandemq.spark.jobs.replay import ReplayPlan, replay
from tandemq.spark.jobs.stats import stats, write_report
from tandemq.spark.lake.table import Lake

pytestmark = pytest.mark.spark
FORMAT = "rocketmq-commitlog"


def lake_offsets(root: Path) -> list[int]:
    found = []
    for file in Lake(str(root)).files()[1]:
        found += pq.read_table(root / file["path"], columns=["physical_offset"]).column(0).to_pylist()
    return sorted(found)


def log_offsets(spark: Any, path: Path) -> list[int]:
    rows = spark.read.format(FORMAT).schema("physical_offset BIGINT").load(str(path)).collect()
    return sorted(row[0] for row in rows)


def test_an_archive_holds_the_log_once_and_goes_on_where_it_was(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """Several batches; a second run adds only what is new; orphans are vacuumed; every message of the log is there."""
    store, lake = tmp_path / "store", tmp_path / "lake"
    shutil.copytree(golden_533 / "slave-clean", store)
    last = sorted((store / "commitlog").iterdir())[-1]
    shutil.move(last, tmp_path / "later")
    options = {"path": str(store), "maxBytesPerTrigger": "300000"}
    plan = ArchivePlan(str(lake), str(tmp_path / "checkpoint"), FORMAT, options)
    first = archive(spark, plan)
    assert first.batches >= 2
    assert lake_offsets(lake) == log_offsets(spark, store)
    shutil.move(tmp_path / "later", last)
    second = archive(spark, plan)
    assert lake_offsets(lake) == log_offsets(spark, golden_533 / "slave-clean")
    assert first.messages + second.messages == len(lake_offsets(lake))
    assert archive(spark, plan).messages == 0
    orphan = lake / "topic=plain" / "part-orphan.parquet"
    orphan.write_bytes(b"left by a killed worker")
    Lake(str(lake)).vacuum(0)
    assert not orphan.exists()
    spark_rows = spark.read.parquet(*[str(lake / f["path"]) for f in Lake(str(lake)).files()[1]])
    assert spark_rows.count() == first.messages + second.messages


def test_a_batch_that_was_committed_before_a_crash_is_recognised(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """Killed between the Delta commit and Spark's own: the batch is replayed, and changes nothing."""
    lake = tmp_path / "lake"
    plan = ArchivePlan(str(lake), str(tmp_path / "c"), FORMAT, {"path": str(golden_533 / "slave-clean")})
    archive(spark, plan)
    before = lake_offsets(lake)
    commits = sorted((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    commits[-1].unlink()
    for crc in (tmp_path / "c" / "commits").glob(".*crc"):
        crc.unlink()
    again = archive(spark, plan)
    assert (again.repeated, again.messages) == (1, 0)
    assert lake_offsets(lake) == before
    files = {f["path"] for f in Lake(str(lake)).files()[1]}
    on_disk = {str(f.relative_to(lake)) for f in lake.rglob("*.parquet") if "_delta_log" not in f.parts}
    assert on_disk == files


def test_a_replay_stores_every_message_once_also_when_run_again(
    spark: Any, golden_533: Path, tmp_path: Path, cluster: Any
) -> None:
    """From a lake by time and filter; from a log; the second run of the same replay adds nothing."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "again", 2)
    lake = tmp_path / "lake"
    source = {"path": str(golden_533 / "slave-clean"), "subscribe": "plain"}
    archive(spark, ArchivePlan(str(lake), str(tmp_path / "c"), FORMAT, source))
    sink = {"nameserver": cluster.nameserver, "topic": "again"}
    plan = ReplayPlan("one", str(tmp_path / "state"), sink, lake=str(lake), where="tags = 'tag1'")
    first = replay(spark, plan)
    second = replay(spark, plan)
    assert first.messages == second.messages > 0
    assert (first.resumed, second.resumed) == (False, True)
    expected = spark.read.format(FORMAT).options(**source, tags="tag1").load().select("body", "keys", "tags").collect()
    read = spark.read.format("rocketmq").option("nameserver", cluster.nameserver).option("subscribe", "again").load()
    rows = read.select("body", "keys", "tags").collect()
    assert sorted(map(tuple, rows), key=str) == sorted(map(tuple, expected), key=str)
    with pytest.raises(ConfigError, match=r"belongs to another replay \(where differ\)"):
        replay(spark, ReplayPlan("one", str(tmp_path / "state"), sink, lake=str(lake)))
    cluster.create_topic(broker, "log", 2)
    sink = {"nameserver": cluster.nameserver, "topic": "log"}
    store = str(golden_533 / "slave-clean")
    from_log = ReplayPlan("two", str(tmp_path / "state2"), sink, store=store, topics=("batch", "large"), rate=100_000)
    assert replay(spark, from_log).messages == replay(spark, from_log).messages
    read = spark.read.format("rocketmq").option("nameserver", cluster.nameserver).option("subscribe", "log").load()
    expected = spark.read.format(FORMAT).option("subscribe", "batch,large").load(store)
    assert sorted(r[0] for r in read.select("body").collect()) == sorted(
        r[0] for r in expected.select("body").collect()
    )


@pytest.mark.parametrize("keep_queues", [True, False])
def test_a_replay_keeps_the_order_of_every_queue(
    spark: Any, golden_533: Path, tmp_path: Path, cluster: Any, keep_queues: bool
) -> None:
    """In files of several batches and in several tasks; with its own queue numbers or with others."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "again", 8)
    lake = tmp_path / "lake"
    source = {"path": str(golden_533 / "slave-clean"), "subscribe": "plain", "maxBytesPerTrigger": "100000"}
    assert archive(spark, ArchivePlan(str(lake), str(tmp_path / "c"), FORMAT, source)).batches > 1
    sink = {"nameserver": cluster.nameserver, "topic": "again"}
    replay(spark, ReplayPlan("order", str(tmp_path / "s"), sink, lake=str(lake), keep_queues=keep_queues))
    log = spark.read.format(FORMAT).options(**{**source, "maxBytesPerTrigger": "0"}).load()
    expected: dict[int, list[Any]] = {}
    for row in log.orderBy("queue_id", "queue_offset").select("queue_id", "keys", "body").collect():
        expected.setdefault(row[0], []).append((row[1], bytes(row[2])))
    read = spark.read.format("rocketmq").option("nameserver", cluster.nameserver).option("subscribe", "again").load()
    found: dict[int, list[Any]] = {}
    for row in read.orderBy("queue_id", "queue_offset").select("queue_id", "keys", "body").collect():
        found.setdefault(row[0], []).append((row[1], bytes(row[2])))
    if keep_queues:
        assert found == expected
        return
    for queue, bodies in expected.items():
        wanted = set(bodies)
        assert len(wanted) == len(bodies)
        (target,) = [number for number, others in found.items() if not wanted.isdisjoint(others)]
        assert [body for body in found[target] if body in wanted] == bodies, queue


def test_an_archive_commits_only_files_that_the_driver_sees(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """A lake that is not shared: the workers' files are elsewhere, so nothing is committed."""
    from tandemq.spark.lake.table import ManifestRow

    lake = Lake(str(tmp_path / "lake"))
    plan = ArchivePlan(lake.root, str(tmp_path / "c"), FORMAT, {"path": str(golden_533 / "slave-clean")})
    archive(spark, plan)
    before = lake.status()
    for row in (ManifestRow("topic=plain/part-away.parquet", 10, 1, "plain", "2026-11-16", "{}"),
                ManifestRow(lake.files()[1][0]["path"], 10, 1, "plain", "2026-11-16", "{}")):  # fmt: skip
        with pytest.raises(ConfigError, match=r"1 of 1 files that workers wrote can't be seen here.*nothing was comm"):
            lake.commit("another", 0, [row])
    assert lake.status() == before


def test_an_audit_compares_consume_queues_too(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """A replica that kept the queue of a topic which was made anew serves other messages, with an equal log."""
    copy = tmp_path / "stale"
    shutil.copytree(golden_533 / "slave-clean", copy)
    queue = copy / "consumequeue" / "plain" / "0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[20:40], data[40:60] = data[40:60], data[20:40]
    queue.write_bytes(data)
    result = audit(spark, f"{golden_533}/slave-clean,{copy}")
    assert not result.equal
    assert result.queues > 1
    assert (result.by_kind, result.ranges) == ({"queue": 2}, [])
    assert [(d["replica"], d["topic"], d["queue_id"], d["queue_offset"]) for d in result.differences] == [
        ("stale", "plain", 0, 1), ("stale", "plain", 0, 2),
    ]  # fmt: skip
    shutil.rmtree(copy / "consumequeue" / "plain" / "0")
    result = audit(spark, f"{golden_533}/slave-clean,{copy}")
    assert result.by_kind == {"queue": 1}
    assert "are missing, although the log is there" in result.differences[0]["detail"]


def test_a_restored_backup_is_equal_to_its_store(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """The log and the queues that were derived anew, of a store that RocketMQ wrote."""
    store, restored = golden_533 / "slave-clean", tmp_path / "restored"
    back_up(store, DirectoryTarget(tmp_path / "backup"), SystemClock())
    restore(DirectoryTarget(tmp_path / "backup"), restored)
    result = audit(spark, f"{store},{restored}")
    assert result.equal, result.differences
    assert result.queues > 1


def test_an_audit_finds_what_was_changed(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """Equal replicas are equal; one flipped byte is found."""
    both = f"{golden_533}/slave-clean,{golden_533}/master-clean"
    result = audit(spark, both)
    assert result.equal
    assert result.stop > 1_000_000
    copy = tmp_path / "flipped"
    shutil.copytree(golden_533 / "slave-clean", copy)
    segment = sorted((copy / "commitlog").iterdir())[2]
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    result = audit(spark, f"{both},{copy}")
    assert not result.equal
    assert (result.count, result.by_kind, result.differences[0]["replica"]) == (1, {"damaged": 1}, "flipped")
    assert result.ranges[0][0] == int(segment.name)
    with pytest.raises(ConfigError, match="at least two replicas"):
        audit(spark, str(copy))


def test_reindex_gives_rocketmqs_own_bytes(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """Checked, destroyed, rebuilt, checked again."""
    store = tmp_path / "store"
    shutil.copytree(golden_533 / "slave-clean", store)
    sizes = {"index_slots": 1000, "index_entries": 2000}
    assert reindex(spark, str(store), check=True, **sizes).different == []
    shutil.rmtree(store / "consumequeue")
    rebuilt = reindex(spark, str(store), queue_file_size=4000, **sizes)
    assert rebuilt.entries > 1000
    assert reindex(spark, str(store), check=True, **sizes).different == []


def test_statistics_agree_with_the_log_and_make_a_page(spark: Any, golden_533: Path, tmp_path: Path) -> None:
    """Counts per topic, windows that add up, lag of the group that read the golden topics, a page without links."""
    store = golden_533 / "master-clean"
    result = stats(spark, FORMAT, {"path": str(store)}, window="1s")
    df = spark.read.format(FORMAT).schema("topic STRING").load(str(store))
    counts = {row["topic"]: row["count"] for row in df.groupBy("topic").count().collect()}
    assert {row["topic"]: row["messages"] for row in result.topics} == counts
    assert sum(row["messages"] for row in result.windows) == sum(counts.values())
    assert {row["tag"] for row in result.tags if row["topic"] == "plain"} >= {"tag1", "tag2"}
    assert any(row["group"] == "GID_golden_reader" for row in result.groups)
    page = tmp_path / "report.html"
    write_report(result, str(page))
    text = page.read_text()
    assert text.count("<svg") >= 5
    assert "plain" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text


@pytest.mark.slow
def test_the_command_line_prints_json_and_an_exit_code(golden_533: Path, tmp_path: Path) -> None:
    """`tandemq spark audit` in a process of its own, as users and cron run it."""
    import json

    both = f"{golden_533}/slave-clean,{golden_533}/master-clean"
    command = [str(Path(sys.executable).parent / "tandemq"), "spark", "audit", "--json", "--master", "local[2]", both]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["equal"] is True
    wrong = subprocess.run([*command[:-1], str(tmp_path)], capture_output=True, text=True, timeout=240)
    assert wrong.returncode == 1
    assert "holds no commit log" in wrong.stderr
