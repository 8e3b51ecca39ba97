"""A task's rows: where they go, their keys and claims; whole, cut and single sends."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tandemq.errors import ConfigError
from tandemq.formats.batch import split_batch
from tandemq.model.message import decode_properties
from tandemq.model.topic import QueueRef
from tandemq.spark.options import SinkOptions, parse
from tandemq.spark.sink import writer as sink_writer
from tandemq.spark.sink.ledger import CannotBeExact, Placement
from tandemq.spark.sink.outbox import Outgoing
from tandemq.spark.sink.writable_columns import checked_columns
from tandemq.spark.sink.writer import TaskWriter

QUEUES = tuple(QueueRef("t", "b", n) for n in range(4))


class FakeOutbox:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.routes = SimpleNamespace(queues=lambda topic: QUEUES)
        self.on_ack: Any = None
        self.sent: list[Outgoing] = []
        self.flushed = False

    def send(self, outgoing: Outgoing) -> None:
        self.sent.append(outgoing)

    def flush(self) -> None:
        self.flushed = True


def options(**given: str) -> SinkOptions:
    return parse(SinkOptions, {"nameserver": "n:1", "topic": "t", **given})


def written(
    given: SinkOptions,
    batch: pa.RecordBatch,
    partition: int = 0,
    batch_id: int = 0,
    arrow_rows: int = 1000,
    **more: Any,
) -> FakeOutbox:
    outbox = FakeOutbox()
    place = SimpleNamespace(sink="s", partition=partition, batch=batch_id)
    task = TaskWriter(given, checked_columns(batch.schema, given), place, outbox, **more)  # type: ignore[arg-type]
    for start in range(0, len(batch), arrow_rows):
        task.write(batch.slice(start, arrow_rows))
    task.finish()
    return outbox


def numbered(count: int, **more: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": [f"m{n}".encode() for n in range(count)], **more})


def messages(outbox: FakeOutbox) -> dict[QueueRef, list[tuple[bytes, str]]]:
    """(body, key) of every message by its queue."""
    found: dict[QueueRef, list[tuple[bytes, str]]] = {}
    for outgoing in outbox.sent:
        for _, body, properties in split_batch(outgoing.data):
            key = decode_properties(bytes(properties))["UNIQ_KEY"]
            found.setdefault(outgoing.queue, []).append((bytes(body), key))
    return found


def test_every_row_once_in_order_with_the_key_of_its_place() -> None:
    outbox = written(options(), numbered(500), partition=3, batch_id=7)
    assert outbox.flushed
    found = messages(outbox)
    assert set(found) == set(QUEUES)
    rows = sorted((pair for pairs in found.values() for pair in pairs), key=lambda pair: int(pair[0][1:]))
    assert [body for body, _ in rows] == [b"m%d" % n for n in range(500)]
    assert [int(key[-16:], 16) for _, key in rows] == [7 << 32 | n for n in range(500)]
    assert len({key[:-16] for _, key in rows}) == 1
    assert all(pairs == sorted(pairs, key=lambda pair: int(pair[0][1:])) for pairs in found.values())


@pytest.mark.parametrize("given", [{"batchBytes": "1024"}, {"batchBytes": "100000"}])
def test_neither_the_size_of_sends_nor_of_arrow_batches_changes_anything(given: dict[str, str]) -> None:
    one, other = written(options(), numbered(700)), written(options(**given), numbered(700), arrow_rows=33)
    assert messages(one) == messages(other)


def test_claims_follow_one_another_in_each_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """before, first, last and count of every send; `since` is when the placement was agreed on."""
    monkeypatch.setattr(sink_writer, "_agreed", lambda *_: Placement(QUEUES, 99))
    outbox = written(options(delivery="exactly_once", batchBytes="2000"), numbered(600))
    last: dict[QueueRef, str] = {}
    for outgoing in outbox.sent:
        _, before, first, final, count, since = decode_properties(outgoing.properties.encode())[
            "__TQ_IDEMPOTENT"
        ].split(":")
        assert before == last.get(outgoing.queue, "-")
        assert (int(count), since) == (outgoing.count, "99")
        assert int(first, 16) + outgoing.count - 1 <= int(final, 16)
        last[outgoing.queue] = final


def test_wishes_are_granted() -> None:
    found = messages(written(options(), numbered(3, queue_id=pa.array([3, None, 3], pa.int32()))))
    assert [body for body, _ in found[QUEUES[3]]] == [b"m0", b"m2"]
    found = messages(written(options(), numbered(2, partition=pa.array([2, 1], pa.int32()))))
    assert {queue.queue_id for queue in found} == {1, 2}
    with pytest.raises(ConfigError, match="'t' has no partition 4; it has 0 to 3"):
        written(options(), numbered(1, partition=pa.array([4], pa.int32())))
    by_key = messages(written(options(), numbered(50, order_key=["same"] * 50)))
    assert len(by_key) == 1
    kafka = messages(written(options(schema="kafka"), numbered(50, key=[b"same"] * 50)))
    assert len(kafka) == 1


def test_a_row_that_can_not_be_in_a_batch_is_sent_alone_in_its_place() -> None:
    delays = pa.array([0, 0, 1, 0], pa.int32())
    outbox = written(options(), numbered(4, delay_level=delays, queue_id=pa.array([0] * 4, pa.int32())))
    assert [(outgoing.single, outgoing.count) for outgoing in outbox.sent] == [(False, 2), (True, 1), (False, 1)]
    assert outbox.sent[1].data == b"m2"
    assert decode_properties(outbox.sent[1].properties.encode())["DELAY"] == "1"


def test_a_repeated_write_with_other_rows_is_refused() -> None:
    with pytest.raises(CannotBeExact, match="1 partitions of"):
        written(options(), numbered(5), known_rows=[4])
    with pytest.raises(CannotBeExact, match="1 partitions of"):
        written(options(), numbered(3), known_rows=[4])
    written(options(), numbered(4), known_rows=[4])


def test_halves_are_single_messages_that_nobody_sees() -> None:
    outbox = written(options(delivery="exactly_once"), numbered(3), transactional=True)
    assert all(outgoing.single and outgoing.sys_flag == 4 for outgoing in outbox.sent)
    assert all("TRAN_MSG\x01true" in outgoing.properties for outgoing in outbox.sent)
    with pytest.raises(ConfigError, match="can't be delayed"):
        written(options(), numbered(1, delay_level=pa.array([1], pa.int32())), transactional=True)
