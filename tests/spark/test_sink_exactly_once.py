"""The same write repeated under its name while the cluster changes: every row once, or a refusal that says why."""

from typing import Any

import pyarrow as pa
import pytest
from tests.spark.sink_tasks import Place, forget_process, numbered, numbers, read, sink, write

from tandemq.errors import TandemError
from tandemq.spark.options import SinkOptions
from tandemq.spark.sink.ledger import CannotBeExact, LedgerBook, WriteLedger
from tandemq.spark.sink.outbox import NotDelivered
from tandemq.spark.sink.routes import WriteRoutes

COUNT = 2000


def exactly(cluster: Any, **given: str) -> SinkOptions:
    return sink(cluster, delivery="exactly_once", retryIntervalMs="10", batchBytes="5000", **given)


def test_a_group_that_is_away_is_refused_and_no_row_goes_elsewhere(cluster: Any) -> None:
    """Half of the rows belong to the group that is away; when it is back the repeat is exact."""
    brokers = [cluster.add_broker(name) for name in ("broker-a", "broker-b")]
    for broker in brokers:
        cluster.create_topic(broker, "t", 4)
    write(exactly(cluster), numbered(COUNT).slice(0, 1500))
    cluster.run(brokers[0].stop())
    with pytest.raises(TandemError, match="broker-a"):
        write(exactly(cluster, deliveryTimeoutMs="300"), numbered(COUNT))
    cluster.restart(brokers[0])
    write(exactly(cluster), numbered(COUNT))
    assert numbers(cluster) == list(range(COUNT))


def test_more_queues_another_batch_size_and_other_arrow_batches_change_nothing(cluster: Any) -> None:
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 4)
    write(exactly(cluster), numbered(COUNT).slice(0, 1234))
    cluster.create_topic(broker, "t", 8)
    for given, arrow_rows in ({"batchBytes": "100000"}, 10_000), ({"batchBytes": "1024"}, 77), ({}, 999):
        options = sink(cluster, delivery="exactly_once", **given)
        write(options, numbered(COUNT), arrow_rows=arrow_rows)
        assert numbers(cluster) == list(range(COUNT))
    assert {row["queue_id"] for row in read(cluster)} == {0, 1, 2, 3}
    write(exactly(cluster), numbered(COUNT), Place(batch=1))
    assert {row["queue_id"] for row in read(cluster)} == set(range(8))


def test_sharding_keys_stay_exact_when_queues_are_added(cluster: Any) -> None:
    """A key's queue depends on how many there are: those that were agreed on count."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 3)
    rows = numbered(COUNT, sharding_key=[f"user{n % 37}" for n in range(COUNT)])
    write(exactly(cluster), rows.slice(0, 700))
    cluster.create_topic(broker, "t", 7)
    write(exactly(cluster), rows)
    assert numbers(cluster) == list(range(COUNT))


def test_other_rows_under_the_same_name_are_refused(cluster: Any) -> None:
    """Not the same rows in the same order: seen before anything is added."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 2)
    write(exactly(cluster), numbered(COUNT).slice(0, 1000))
    shuffled = pa.RecordBatch.from_pydict({"body": [f"m{(n * 7 + 3) % COUNT}".encode() for n in range(COUNT)]})
    with pytest.raises(NotDelivered, match="the rows are not the same"):
        write(exactly(cluster), shuffled)
    assert numbers(cluster) == list(range(1000))


def test_another_number_of_partitions_is_refused_before_anything_is_sent(cluster: Any) -> None:
    """The completed write says how many rows each partition had."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 2)
    options = exactly(cluster, sinkId="s")
    write(options, numbered(COUNT))
    routes = WriteRoutes(options)
    book = LedgerBook(options, routes)
    assert book.find("complete/s") is None
    WriteLedger("s", book.groups, book).complete([COUNT])
    known = book.find("complete/s")
    assert known is not None
    for partition, rows in ((0, numbered(COUNT // 2)), (1, numbered(COUNT // 2)), (0, numbered(COUNT + 1))):
        with pytest.raises(CannotBeExact, match=r"1 partitions of \[2000\] rows"):
            write(options, rows, Place(partition=partition), known_rows=known["rows"])
    write(options, numbered(COUNT), known_rows=known["rows"])
    assert numbers(cluster) == list(range(COUNT))


def test_an_older_checkpoint_is_refused(cluster: Any) -> None:
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 2)
    write(exactly(cluster), numbered(10), Place(batch=7))
    forget_process()
    with pytest.raises(CannotBeExact, match="has begun micro-batch 7, but this query is at 6"):
        write(exactly(cluster), numbered(10), Place(batch=6))


def test_what_the_broker_remembers_comes_from_its_log(cluster: Any) -> None:
    """Also without the snapshot that makes starting faster."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 2)
    write(exactly(cluster), numbered(COUNT).slice(0, 1500))
    cluster.run(broker.stop())
    (broker.root / "config" / "idempotence.json").unlink(missing_ok=True)
    cluster.restart(broker)
    write(exactly(cluster), numbered(COUNT))
    assert numbers(cluster) == list(range(COUNT))
