"""Access, sender and task writer against a live broker of ours; no JVM, so these run in milliseconds."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.sink_tasks import ROWS, Place, numbered, read, sink, write

from tandemq.errors import ConfigError, NoRoute
from tandemq.spark.options import PullOptions, SinkOptions, parse
from tandemq.spark.sink.outbox import NotDelivered, Outbox, Outgoing
from tandemq.spark.sink.routes import WriteRoutes
from tandemq.spark.sink.writable_columns import checked_columns
from tandemq.spark.sink.writer import TaskWriter
from tandemq.spark.source.broker_queues import BrokerAccess
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.offsets import Range, Slice
from tandemq.spark.source.prefetch import prefetched
from tandemq.testing.waiting import wait_until


def test_what_is_written_is_read_back(cluster: Any) -> None:
    """All columns, over all queues, in order within each."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 4)
    batch = numbered(5000, keys=[f"k{n}" for n in range(5000)], tags=["a", None] * 2500)
    assert write(sink(cluster, batchBytes="10000"), batch).messages == 5000
    rows = read(cluster)
    assert sorted(int(row["body"][1:]) for row in rows) == list(range(5000))
    assert {row["queue_id"] for row in rows} == {0, 1, 2, 3}
    for queue in range(4):
        bodies = [int(row["body"][1:]) for row in rows if row["queue_id"] == queue]
        assert bodies == sorted(bodies)
    assert len({row["msg_id"] for row in rows}) == 5000


def test_at_least_once_repeats_the_keys_and_exactly_once_repeats_nothing(cluster: Any) -> None:
    """A task that runs twice: the same messages with the same keys, or no second copy at all."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 2)
    for _ in range(2):
        write(sink(cluster, batchBytes="2000"), numbered(300))
    rows = read(cluster)
    assert len(rows) == 600
    assert len({row["msg_id"] for row in rows}) == 300
    cluster.create_topic(broker, "u", 2)
    for batch in (0, 1):
        for _ in range(3):
            write(sink(cluster, topic="u", delivery="exactly_once", batchBytes="2000"), numbered(300), Place(batch))
    rows = read(cluster, subscribe="u")
    assert len(rows) == 600
    assert len({row["msg_id"] for row in rows}) == 600


def test_a_task_that_died_half_way_is_completed(cluster: Any) -> None:
    """The repeat appends only what is missing, also after a restart of the broker: the table is read off the log."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    options = sink(cluster, delivery="exactly_once", batchBytes="1500")
    write(options, numbered(100).slice(0, 57))
    cluster.restart(broker)
    write(options, numbered(100))
    write(options, numbered(100))
    assert [int(row["body"][1:]) for row in read(cluster)] == list(range(100))


def test_rows_out_of_order_are_refused(cluster: Any) -> None:
    """A gap means that something was lost: the sink must not hide it."""
    from tandemq.formats.batch import encode_batch
    from tandemq.spark.sink.idempotent_key import claim, producer_id

    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    options = sink(cluster, delivery="exactly_once", retries="0")
    outbox = Outbox(options, WriteRoutes(options))
    queue = outbox.routes.queues("t")[0]
    text = claim(producer_id("s", 0, "t", "broker-a", 0), 6, 7, 7, 1)
    outbox.send(Outgoing(queue, encode_batch([(0, b"x", b"")]), 1, 0, text))
    with pytest.raises(NotDelivered, match=r"out of order.*none of its messages is stored.*1 were refused"):
        outbox.flush()


def test_queue_sharding_delay_compression_and_properties(cluster: Any) -> None:
    """Each wish of a row is granted."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 4)
    write(sink(cluster), numbered(8, queue_id=pa.array([3] * 8, pa.int32())))
    assert {row["queue_id"] for row in read(cluster)} == {3}
    with pytest.raises(ConfigError, match="no queue 9; it has 0 to 3"):
        write(sink(cluster), numbered(1, queue_id=pa.array([9], pa.int32())))
    cluster.create_topic(broker, "u", 4)
    write(sink(cluster, topic="u"), numbered(40, sharding_key=[f"user{n % 5}" for n in range(40)]))
    rows = read(cluster, subscribe="u")
    places = {}
    for row in rows:
        places.setdefault(dict(row["properties"])["__SHARDINGKEY"], set()).add(row["queue_id"])
    assert len(places) == 5
    assert all(len(queues) == 1 for queues in places.values())
    cluster.create_topic(broker, "v", 1)
    batch = pa.RecordBatch.from_pydict(
        {"body": [b"plain", b"z" * 9000, b"late"], "delay_level": pa.array([0, 0, 1], pa.int32())}
    )
    write(sink(cluster, topic="v", compression="zlib"), batch)
    assert [row["body"] for row in read(cluster, subscribe="v")][:2] == [b"plain", b"z" * 9000]


def test_ranges_times_assign_and_unknown_topics(cluster: Any) -> None:
    """Planning's questions to the cluster."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 2)
    write(sink(cluster), numbered(10, queue_id=pa.array([1] * 10, pa.int32())))
    access = BrokerAccess(parse(PullOptions, {"nameserver": cluster.nameserver, "assign": '{"t": [1]}'}))
    ((queue, bounds),) = access.ranges().items()
    assert (queue.queue_id, bounds) == (1, Range(0, 10))
    assert access.at_time({queue: 0})[queue] == 0
    assert access.at_time({queue: 4_000_000_000_000})[queue] == 10
    assert access.mean_size(queue, 0, 10) > 90
    with pytest.raises(NoRoute, match="no name server knows topic 'nowhere'"):
        read(cluster, subscribe="nowhere")
    pattern = BrokerAccess(parse(PullOptions, {"nameserver": cluster.nameserver, "subscribePattern": "t|none.*"}))
    assert {q.topic for q in pattern.ranges()} == {"t"}
    access.commit_group("GID_spark", {queue: 7})
    from tandemq.client.bulk import BlockingLink
    from tandemq.codec.codes import RequestCode

    fields = {"consumerGroup": "GID_spark", "topic": "t", "queueId": "1"}
    link = BlockingLink(broker.address)
    assert link.call(RequestCode.QUERY_CONSUMER_OFFSET, fields).ext["offset"] == "7"
    link.close()


def test_a_read_goes_on_after_the_broker_was_away(cluster: Any, tmp_path: Path) -> None:
    """The connection breaks between two reads; the next one finds the broker again."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    write(sink(cluster), numbered(50))
    assert len(read(cluster)) == 50
    cluster.restart(broker)
    assert len(read(cluster)) == 50


def test_a_read_that_a_limit_left_leaves_nothing_behind(cluster: Any) -> None:
    """Spark closes the reader in mid-queue, with pulls under way: the thread ends, their answers reach nobody."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    write(sink(cluster), numbered(3000))
    given = {"nameserver": cluster.nameserver, "subscribe": "t", "pullSize": "50", "groupId": "GID_limit"}
    access = BrokerAccess(parse(PullOptions, given))
    (queue, bounds) = next(iter(access.ranges().items()))
    threads = threading.active_count()
    for _ in range(3):
        batches = prefetched(access.read(Slice(queue, *bounds), Decoder(ROWS), 100, False))
        assert next(batches).num_rows == 50, "the first batch is one pull, so that a LIMIT waits for no more"
        batches.close()  # type: ignore[attr-defined]
        assert threading.active_count() == threads
        assert access.open_addresses == ()
    rows = [row for b in access.read(Slice(queue, *bounds), Decoder(ROWS), 100, False) for row in b.to_pylist()]
    assert [int(row["body"][1:]) for row in rows] == list(range(3000))


def test_a_refusal_that_will_not_change_is_raised_at_once(cluster: Any) -> None:
    """Too large a message is no reason to try again."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    with pytest.raises(NotDelivered, match=r"refuses 1 messages.*limit.*0 are stored, 1 were refused"):
        write(sink(cluster), pa.RecordBatch.from_pydict({"body": [b"x" * (5 << 20)]}))


# -- transactions: what exactly_once is on a broker that can't refuse repeats --------------------------------------


def write_halves(options: SinkOptions, batch: pa.RecordBatch, place: Place) -> Any:
    outbox = Outbox(options, WriteRoutes(options))
    writer = TaskWriter(options, checked_columns(batch.schema, options), place, outbox, transactional=True)
    writer.write(batch)
    writer.finish()
    outbox.close()
    return writer.halves


def test_halves_are_invisible_until_decided_and_then_there_once(cluster: Any) -> None:
    """Two runs of one micro-batch: the first decision wins, the second run's halves are rolled back."""
    from tandemq.spark.sink.transactions import Coordinator

    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 2)
    options = sink(cluster, delivery="exactly_once", transactional="true")
    first = write_halves(options, numbered(20), Place(batch=4))
    assert len(first) == 20
    assert read(cluster) == []
    second = write_halves(options, numbered(20), Place(batch=4))
    Coordinator(options, "s").commit(4, first)
    for _ in range(2):
        Coordinator(options, "s").commit(4, second)
    wait_until(lambda: len(read(cluster)) >= 20)
    assert sorted(int(row["body"][1:]) for row in read(cluster)) == list(range(20))


def test_a_driver_that_died_after_its_decision_is_completed(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some halves were committed before the crash: exactly the others are committed by the next run."""
    from tandemq.spark.sink import transactions
    from tandemq.spark.sink.transactions import Coordinator

    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    options = sink(cluster, delivery="exactly_once", transactional="true")
    halves = write_halves(options, numbered(10), Place(batch=1))
    dying = Coordinator(options, "s")
    end = dying._end
    monkeypatch.setattr(dying, "_end", lambda some, decision: end(some[:6], decision))
    dying.commit(1, halves)
    wait_until(lambda: len(read(cluster)) == 6)
    monkeypatch.setattr(transactions, "_LOOK_BACK", 3)
    again = write_halves(options, numbered(10), Place(batch=1))
    Coordinator(options, "s").commit(1, again)
    wait_until(lambda: len(read(cluster)) >= 10)
    assert sorted(int(row["body"][1:]) for row in read(cluster)) == list(range(10))


def test_an_abort_takes_back_only_what_no_decision_names(cluster: Any) -> None:
    """Spark calls abort() also after a commit() that failed half way."""
    from tandemq.spark.sink.transactions import Coordinator

    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    options = sink(cluster, delivery="exactly_once", transactional="true")
    undecided = write_halves(options, numbered(5), Place(batch=0))
    Coordinator(options, "s").abort(0, undecided)
    decided = write_halves(options, numbered(5), Place(batch=1))
    Coordinator(options, "s").commit(1, decided)
    Coordinator(options, "s").abort(1, decided)
    wait_until(lambda: len(read(cluster)) >= 5)
    assert len(read(cluster)) == 5
    with pytest.raises(ConfigError, match="can't be delayed"):
        write_halves(options, numbered(1, delay_level=pa.array([1], pa.int32())), Place())


def test_our_broker_says_that_it_refuses_repeats(cluster: Any) -> None:
    """So exactly_once needs no transactions there."""
    from tandemq.spark.sink.transactions import refuses_repeats

    cluster.add_broker()
    assert refuses_repeats(sink(cluster))
