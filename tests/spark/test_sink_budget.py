"""The sink against live brokers that can't do what it asks: it stops, says what was stored, and multiplies nothing."""

from typing import Any

import pyarrow as pa
import pytest
from tests.spark.sink_tasks import Place, numbered, numbers, read, sink, write

from tandemq.errors import ConfigError
from tandemq.spark.sink.outbox import NotDelivered


def test_copies_that_nobody_can_make_store_a_row_once(cluster: Any) -> None:
    """There is no slave: the row is stored on the master alone, and the error says so."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    with pytest.raises(NotDelivered, match=r"SLAVE_NOT_AVAILABLE.*copies=2.*1 are stored with fewer copies than asked"):
        write(sink(cluster, copies="2", retryIntervalMs="1"), numbered(1))
    assert numbers(cluster) == [0]


def test_exactly_once_does_not_multiply_either(cluster: Any) -> None:
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    options = sink(cluster, copies="2", delivery="exactly_once", retryIntervalMs="1", retries="3")
    with pytest.raises(NotDelivered, match=r"after 4 tries \(retries=3\)"):
        write(options, numbered(1))
    assert len([row for row in read(cluster) if row["body"] == b"m0"]) <= 1


def test_a_topic_that_does_not_exist_yet_is_made_and_filled_once(cluster: Any) -> None:
    """The template has more queues than a topic that a first send makes."""
    cluster.add_broker(properties={"autoCreateTopicEnable": "true", "defaultTopicQueueNums": "8"})
    write(sink(cluster, topic="new", batchBytes="20000"), numbered(20_000))
    assert numbers(cluster, subscribe="new") == list(range(20_000))
    assert {row["queue_id"] for row in read(cluster, subscribe="new")} == {0, 1, 2, 3}


def test_an_illegal_topic_ends_at_once_by_name(cluster: Any) -> None:
    cluster.add_broker()
    with pytest.raises(ConfigError, match=r"topic: .*bad topic!"):
        sink(cluster, topic="bad topic!")
    options = sink(cluster, topic="")
    with pytest.raises(ConfigError, match=r"column `topic`: .*bad topic!"):
        write(options, numbered(1, topic=["bad topic!"]))


def test_one_bad_message_does_not_repeat_the_others(cluster: Any) -> None:
    """Too large a message is refused for good; what was sent around it is stored once, and counted."""
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 1)
    bodies = [b"m0", b"m1", b"x" * (5 << 20), b"m3"]
    with pytest.raises(NotDelivered, match=r"limit.*3 are stored, 1 were refused|limit.*2 are stored, 1 were refused"):
        write(sink(cluster, batchBytes="1024"), pa.RecordBatch.from_pydict({"body": bodies}))
    stored = [row["body"] for row in read(cluster)]
    assert len(stored) == len(set(stored))


def test_a_master_that_is_away_for_a_while_is_waited_for(cluster: Any) -> None:
    """Between two writes, with the route still known: no error, nothing twice."""
    import threading

    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 2)
    options = sink(cluster, delivery="exactly_once", retryIntervalMs="20")
    write(options, numbered(100), Place(batch=0))
    restarting = threading.Thread(target=cluster.restart, args=(broker,))
    restarting.start()
    write(options, numbered(100), Place(batch=1))
    restarting.join()
    assert numbers(cluster) == sorted([*range(100), *range(100)])


def test_small_micro_batches_fill_all_queues(cluster: Any) -> None:
    broker = cluster.add_broker()
    cluster.create_topic(broker, "t", 4)
    for batch in range(8):
        write(sink(cluster), numbered(3), Place(batch=batch))
    assert {row["queue_id"] for row in read(cluster)} == {0, 1, 2, 3}
