"""Bulk reading and writing over one connection."""

import pytest
from tests.unit.client.fake_cluster import pull_answer, record
from tests.unit.client.fake_socket import served

from tandemq.client.bulk import BatchSender, QueueReader
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError, ReplyError
from tandemq.formats.record import parse_record, walk


class Queue:
    """Answers pulls with at most `portion` records, wherever they start."""

    def __init__(self, count: int, portion: int = 1 << 20, first: int = 0) -> None:
        self.count, self.portion, self.first = count, portion, first

    def __call__(self, command: Command) -> Command:
        if command.code == RequestCode.GET_MIN_OFFSET:
            return Command(0, {"offset": str(self.first)})
        if command.code == RequestCode.GET_MAX_OFFSET:
            return Command(0, {"offset": str(self.count)})
        if command.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return Command(0, {"offset": "3"})
        start = int(command.ext["queueOffset"])
        if start < self.first:
            return pull_answer(ResponseCode.PULL_OFFSET_MOVED, self.first)
        stop = min(self.count, start + min(self.portion, int(command.ext["maxMsgNums"])))
        if stop <= start:
            return pull_answer(ResponseCode.PULL_NOT_FOUND, start)
        return pull_answer(0, stop, b"".join(record(b"%d" % i, i) for i in range(start, stop)))


def read(queue: Queue, start: int, stop: int, monkeypatch: pytest.MonkeyPatch, **given: int) -> list[int]:
    found: list[int] = []
    with served(monkeypatch, queue), QueueReader("a:1", timeout=5, **given) as reader:
        for chunk, next_offset in reader.read("T", 0, start, stop):
            found += [int(parse_record(chunk, place).body) for place, _, _ in walk(chunk, 0, len(chunk))]
            assert next_offset == found[-1] + 1
    return found


@pytest.mark.parametrize("portion", [1, 7, 32, 1000])
def test_every_record_of_a_range_is_read_once_in_order(portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(Queue(100, portion), 5, 90, monkeypatch, count=40) == list(range(5, 90))


def test_a_range_beyond_the_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClientError, match="offset 10 has no message yet"):
        read(Queue(10), 5, 20, monkeypatch)


def test_offsets_that_were_deleted_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps: list[tuple[int, int]] = []
    with served(monkeypatch, Queue(20, first=10)), QueueReader("a:1") as reader:
        chunks = list(reader.read("T", 0, 0, 20, on_gap=lambda expected, found: gaps.append((expected, found))))
        assert (gaps, chunks[-1].next_offset) == ([(0, 10)], 20)
        with pytest.raises(ClientError, match="offset 0 is gone, the first one left is 10"):
            list(reader.read("T", 0, 0, 20))


def test_ranges_and_times_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, Queue(20, first=2)), QueueReader("a:1") as reader:
        assert reader.range("T", 0) == (2, 20)
        assert reader.offset_at("T", 0, 1000) == 3


def test_batches_are_acknowledged_in_order_with_so_many_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[bytes] = []

    def store(command: Command) -> Command:
        stored.append(bytes(command.body))
        return Command(0, {"queueId": "0", "queueOffset": str(len(stored) - 1), "msgId": "ID"})

    with served(monkeypatch, store) as asked, BatchSender("a:1", depth=2) as sender:
        acks = [sender.send("T", 0, b"%d" % i, tag=i, single=i == 3) for i in range(4)]
        rest = sender.flush()
    assert [len(found) for found in acks] == [0, 0, 1, 1]
    assert [ack.tag for found in (*acks, rest) for ack in found] == [0, 1, 2, 3]
    assert stored == [b"0", b"1", b"2", b"3"]
    assert [c.code for c in asked] == [RequestCode.SEND_BATCH_MESSAGE] * 3 + [RequestCode.SEND_MESSAGE_V2]


def test_a_refused_batch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, lambda _: Command(1, remark="full")), BatchSender("a:1") as sender:
        sender.send("T", 0, b"x")
        with pytest.raises(ReplyError, match="full"):
            sender.flush()
