"""Access, sender and task writer against a live broker of ours; no JVM, so these run in milliseconds."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tandemq.errors import ConfigError, NoRoute, ReplyError
from tandemq.spark import broker_access
from tandemq.spark.broker_access import BrokerAccess
from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.decoder import Decoder
from tandemq.spark.encoder import checked_columns
from tandemq.spark.offsets import Range, Slice, slices_of
from tandemq.spark.options import PullOptions, SinkOptions, parse
from tandemq.spark.prefetch import prefetched
from tandemq.spark.sender import Sender
from tandemq.spark.writer import TaskWriter

ROWS = default_arrow_schema(["queue_id", "queue_offset", "keys", "tags", "body", "msg_id", "properties"])


class Place:
    def __init__(self, batch: int = 0, partition: int = 0, sink: str = "s") -> None:
        self.batch, self.partition, self.sink = batch, partition, sink


def sink(cluster: Any, **given: str) -> SinkOptions:
    return parse(SinkOptions, {"nameserver": cluster.nameserver, "topic": "t", **given})


def write(options: SinkOptions, batch: pa.RecordBatch, place: Place | None = None) -> Sender:
    sender = Sender(options)
    writer = TaskWriter(options, checked_columns(batch.schema, options), place or Place(), sender)
    writer.write(batch)
    sender.flush()
    sender.close()
    return sender


def read(cluster: Any, **given: str) -> list[dict[str, Any]]:
    options = parse(PullOptions, {"nameserver": cluster.nameserver, "subscribe": "t", **given})
    access = BrokerAccess(options)
    ranges = access.ranges()
    rows = []
    for piece in slices_of({q: r.first for q, r in ranges.items()}, {q: r.next for q, r in ranges.items()}):
        for batch in access.read(piece, Decoder(ROWS), 1000, False):
            rows += batch.to_pylist()
    return rows


def numbered(count: int, **more: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": [f"m{n}".encode() for n in range(count)], **more})


def test_what_is_written_is_read_back(cluster: Any) -> None:
    """All columns, over all queues, in order within each."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 4)
    batch = numbered(5000, keys=[f"k{n}" for n in range(5000)], tags=["a", None] * 2500)
    sender = write(sink(cluster, batchBytes="10000"), batch)
    assert sender.sent.messages == 5000
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
    from tandemq.spark.idempotent_key import producer_id
    from tandemq.spark.sender import Outgoing

    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    options = sink(cluster, delivery="exactly_once", retries="0")
    sender = Sender(options)
    queue = sender.queues("t")[0]
    from tandemq.codec.batch import encode_batch

    claim = f"__TQ_IDEMPOTENT\x01{producer_id('s', 0, 't', 'broker-a', 0)}:7:1\x02"
    sender.send(Outgoing(queue, encode_batch([(0, b"x", b"")]), 1, 0, claim))
    with pytest.raises(Exception, match="out of order"):
        sender.flush()


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
        assert next(batches).num_rows == 100
        batches.close()  # type: ignore[attr-defined]
        assert threading.active_count() == threads
        assert not [key for key in broker_access._readers if key[0] == broker.address and key[1] == "GID_limit"]
    rows = [row for b in access.read(Slice(queue, *bounds), Decoder(ROWS), 100, False) for row in b.to_pylist()]
    assert [int(row["body"][1:]) for row in rows] == list(range(3000))


def test_a_refusal_that_will_not_change_is_raised_at_once(cluster: Any) -> None:
    """Too large a message is no reason to try again."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    with pytest.raises(ReplyError, match="limit"):
        write(sink(cluster), pa.RecordBatch.from_pydict({"body": [b"x" * (5 << 20)]}))


# -- transactions: what exactly_once is on a broker that can't refuse repeats --------------------------------------


def write_halves(options: SinkOptions, batch: pa.RecordBatch, place: Place) -> Any:
    sender = Sender(options)
    writer = TaskWriter(options, checked_columns(batch.schema, options), place, sender, transactional=True)
    writer.write(batch)
    sender.flush()
    sender.close()
    return writer.halves


def test_halves_are_invisible_until_decided_and_then_there_once(cluster: Any) -> None:
    """Two runs of one micro-batch: the first decision wins, the second run's halves are rolled back."""
    from tandemq.spark.transactions import Coordinator

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
    wait_for(lambda: len(read(cluster)) >= 20)
    assert sorted(int(row["body"][1:]) for row in read(cluster)) == list(range(20))


def test_a_driver_that_died_after_its_decision_is_completed(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some halves were committed before the crash: exactly the others are committed by the next run."""
    from tandemq.spark import transactions
    from tandemq.spark.transactions import Coordinator

    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    options = sink(cluster, delivery="exactly_once", transactional="true")
    halves = write_halves(options, numbered(10), Place(batch=1))
    dying = Coordinator(options, "s")
    end = dying._end
    monkeypatch.setattr(dying, "_end", lambda some, decision: end(some[:6], decision))
    dying.commit(1, halves)
    wait_for(lambda: len(read(cluster)) == 6)
    monkeypatch.setattr(transactions, "_LOOK_BACK", 3)
    again = write_halves(options, numbered(10), Place(batch=1))
    Coordinator(options, "s").commit(1, again)
    wait_for(lambda: len(read(cluster)) >= 10)
    assert sorted(int(row["body"][1:]) for row in read(cluster)) == list(range(10))


def test_an_abort_takes_back_only_what_no_decision_names(cluster: Any) -> None:
    """Spark calls abort() also after a commit() that failed half way."""
    from tandemq.spark.transactions import Coordinator

    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    options = sink(cluster, delivery="exactly_once", transactional="true")
    undecided = write_halves(options, numbered(5), Place(batch=0))
    Coordinator(options, "s").abort(0, undecided)
    decided = write_halves(options, numbered(5), Place(batch=1))
    Coordinator(options, "s").commit(1, decided)
    Coordinator(options, "s").abort(1, decided)
    wait_for(lambda: len(read(cluster)) >= 5)
    assert len(read(cluster)) == 5
    with pytest.raises(ConfigError, match="can't be delayed"):
        write_halves(options, numbered(1, delay_level=pa.array([1], pa.int32())), Place())


def test_our_broker_says_that_it_refuses_repeats(cluster: Any) -> None:
    """So exactly_once needs no transactions there."""
    from tandemq.spark.transactions import refuses_repeats

    cluster.add_broker()
    assert refuses_repeats(sink(cluster))


def wait_for(condition: Any, seconds: float = 20.0) -> None:
    import threading

    pause = threading.Event()
    for _ in range(int(seconds * 20)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("the condition did not come true in time")
