"""Bulk reading and writing over one blocking socket, for programs that move millions of messages (Spark tasks, tools).

No event loop and no object per message: `QueueReader` gives the raw records of a queue in large chunks, `BatchSender`
takes encoded batches. Both keep several requests under way on the connection. Not for threads: one owner each.

    with QueueReader("10.0.0.1:10911", group="audit") as reader:
        for chunk, next_offset in reader.read("orders", 0, start, stop): ...   # chunk: concatenated records
"""

import re
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tandemq.client.blocking_link import BlockingLink
from tandemq.clock import Clock, SystemClock
from tandemq.codec import bodies, fastjson
from tandemq.codec.acl import Credentials
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError, ReplyError
from tandemq.formats.record import HEAD, walk
from tandemq.model.topic import AUTO_CREATE_TOPIC

PULL_COUNT = 4096
"""Messages asked for in one pull. RocketMQ caps an answer at limits of its own (32 messages), ours gives more."""
_SUBSCRIPTION_FLAG = "4"
TAG, SQL92 = "TAG", "SQL92"
"""Kinds of filter expressions."""
_QUEUE_STATS = re.compile(rb'"queueId":(\d+)[^{}]*\}:\{[^{}]*"maxOffset":(-?\d+),"minOffset":(-?\d+)')
"""One queue of a TopicStatsTable as brokers write it. Ten times as fast as parsing JSON with objects for keys."""
_REQUESTS_AT_ONCE = 512
_TOGETHER_MIN = 8
"""From so many queues of a topic on, all of them are asked for in one request."""


class Chunk(NamedTuple):
    records: bytes | memoryview
    """Concatenated records, whole ones only."""
    next_offset: int
    """Queue offset after the last record."""


class QueueReader:
    """Reads queues of one broker, master or slave."""

    def __init__(
        self,
        address: str,
        *,
        group: str = "TANDEMQ_BULK",
        timeout: float = 10.0,
        depth: int = 4,
        count: int = PULL_COUNT,
        size_max: int = 1024 * 1024,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`depth` pulls are under way at once, each asking for `count` messages or `size_max` bytes."""
        self._link = BlockingLink(address, timeout=timeout, credentials=credentials, tls=tls)
        self._group = group
        self._depth = depth
        self._count = count
        self._size_max = size_max

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> "QueueReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Returns the [first, next) offsets that the queue has now."""
        fields = {"topic": topic, "queueId": str(queue_id)}
        asked = [self._link.send(code, fields) for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)]
        low, high = (int(self._link.wait(opaque).raise_for_code().ext["offset"]) for opaque in asked)
        return max(0, low), high

    def ranges(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
        """Returns [first, next) of many (topic, queue id), asked for together; of a whole topic in one request."""
        wanted: dict[str, set[int]] = {}
        for topic, queue_id in queues:
            wanted.setdefault(topic, set()).add(queue_id)
        known: dict[tuple[str, int], tuple[int, int]] = {}
        for topic, ids in wanted.items():
            if len(ids) >= _TOGETHER_MIN:
                known |= {(topic, queue_id): bounds for queue_id, bounds in self._topic_ranges(topic).items()}
        missing = [queue for queue in queues if queue not in known]
        asked = [
            (code, {"topic": topic, "queueId": str(queue_id)})
            for topic, queue_id in missing
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        ]
        offsets = [int(reply.raise_for_code().ext["offset"]) for reply in self._answers(asked)]
        known |= {
            queue: (max(0, low), high) for queue, low, high in zip(missing, offsets[::2], offsets[1::2], strict=True)
        }
        return [known[queue] for queue in queues]

    def _topic_ranges(self, topic: str) -> dict[int, tuple[int, int]]:
        """Returns [first, next) of every queue of a topic; nothing where the broker does not tell."""
        reply = self._link.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        if reply.code != ResponseCode.SUCCESS:
            return {}
        body = bytes(reply.body)
        numbers = _QUEUE_STATS.findall(body)
        if len(numbers) != body.count(b'"queueId"'):  # written in another order: read it as what it is
            table = bodies.queue_table_of(fastjson.loads(body).get("offsetTable", {}))
            numbers = [(queue.queue_id, found["maxOffset"], found["minOffset"]) for queue, found in table.items()]
        return {int(queue_id): (max(0, int(low)), int(high)) for queue_id, high, low in numbers}

    def messages_at(self, places: Sequence[tuple[str, int, int]]) -> "list[bytes | None]":
        """Returns the record at each (topic, queue id, offset), None where there is none; asked for together."""
        asked = [self._pull_request(topic, queue_id, offset, 1, "*", TAG) for topic, queue_id, offset in places]
        found: list[bytes | None] = []
        for (_, _, offset), reply in zip(places, self._answers(asked), strict=True):
            body = bytes(reply.body) if reply.code == ResponseCode.SUCCESS else b""
            found.append(body if body and HEAD.unpack_from(body, 0)[5] == offset else None)
        return found

    def _answers(self, requests: Sequence[tuple[int, dict[str, str]]]) -> Iterator[Command]:
        """Yields the answers to many requests, a few hundred of which are under way at once."""
        under_way: deque[int] = deque()
        for code, fields in requests:
            if len(under_way) >= _REQUESTS_AT_ONCE:
                yield self._link.wait(under_way.popleft())
            under_way.append(self._link.send(code, fields))
        while under_way:
            yield self._link.wait(under_way.popleft())

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Returns the offset of the first message stored at or after a time."""
        return self.offsets_at([(topic, queue_id, timestamp_ms)])[0]

    def offsets_at(self, places: Sequence[tuple[str, int, int]]) -> list[int]:
        """Returns the first offset stored at or after each (topic, queue id, time in ms), asked for together."""
        asked = [
            (
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                {"topic": topic, "queueId": str(queue_id), "timestamp": str(timestamp_ms)},
            )
            for topic, queue_id, timestamp_ms in places
        ]
        return [int(reply.raise_for_code().ext["offset"]) for reply in list(self._answers(asked))]

    def read(
        self,
        topic: str,
        queue_id: int,
        start: int,
        stop: int,
        *,
        on_gap: Callable[[int, int], None] | None = None,
        expression: str = "*",
        expression_type: str = TAG,
    ) -> Iterator[Chunk]:
        """Yields every record with an offset in [start, stop), in order.

        Where the next pull begins is known only when the one before is answered. So the first answer shows how many
        messages fit, later pulls ask for that many and are sent ahead; an answer that comes out shorter makes those
        ahead of it worthless, and they are asked again. `on_gap(expected, found)` is told when offsets are missing
        because the broker deleted them; without it that is a ClientError.

        With another `expression` than `*` the broker leaves out what does not match it: tags by their hash, so compare
        them again, or SQL92. How far an answer reaches is not known before, so nothing is sent ahead then.
        """
        position = start
        is_filtered = expression != "*"
        count, ahead = self._count, 1
        under_way: deque[tuple[int, int, int]] = deque()
        """(offset asked for, count asked for, opaque), in offset order, without gaps."""
        while position < stop:
            following = under_way[-1][0] + under_way[-1][1] if under_way else position
            while len(under_way) < ahead and following < stop:
                wanted = min(count, stop - following)
                request = self._pull_request(topic, queue_id, following, wanted, expression, expression_type)
                under_way.append((following, wanted, self._link.send(*request)))
                following += wanted
            asked, wanted, opaque = under_way.popleft()
            records, position_next, first = self._chunk(self._link.wait(opaque), asked, stop, is_filtered)
            if first is not None:
                self._drop(under_way)
                if on_gap is None:
                    raise ClientError(f"{topic}/{queue_id}: offset {asked} is gone, the first one left is {first}")
                on_gap(asked, first)
                position = first
                continue
            if position_next == asked:
                raise ClientError(f"{topic}/{queue_id}: offset {asked} has no message yet, asked up to {stop}")
            position = position_next
            got = position - asked
            if got != wanted and not is_filtered:
                self._drop(under_way)
                # Cut by size: a little less next time, so that messages of about this size come in full counts.
                by_size = len(records) > self._size_max // 2
                count = max(1, got * 7 // 8 if by_size else got)
            ahead = 1 if is_filtered else self._depth
            yield Chunk(records, position)
        self._drop(under_way)

    def _drop(self, under_way: deque[tuple[int, int, int]]) -> None:
        """Takes and discards answers that are of no use any more; they still come."""
        for _, _, opaque in under_way:
            self._link.wait(opaque)
        under_way.clear()

    def _pull_request(
        self, topic: str, queue_id: int, offset: int, count: int, expression: str, expression_type: str
    ) -> tuple[int, dict[str, str]]:
        fields = {
            "consumerGroup": self._group,
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(count),
            "sysFlag": _SUBSCRIPTION_FLAG,
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": expression,
            "subVersion": "0",
            "expressionType": expression_type,
            "maxMsgBytes": str(self._size_max),
        }
        return RequestCode.PULL_MESSAGE, fields

    def _chunk(
        self, reply: Command, asked: int, stop: int, is_filtered: bool
    ) -> tuple[bytes | memoryview, int, int | None]:
        """Returns (records before `stop`, next offset, where the queue goes on if `asked` is gone)."""
        code = reply.code
        if code == ResponseCode.SUCCESS:
            next_offset = int(reply.ext["nextBeginOffset"])
            body = reply.body
            return (body, next_offset, None) if next_offset <= stop else _cut(body, stop)
        if code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
            following = max(asked, int(reply.ext.get("nextBeginOffset", asked)))
            if following > asked and not is_filtered:
                return b"", asked, min(following, stop)  # all messages match, so those in between are gone
            return b"", min(following, stop), None
        if code == ResponseCode.PULL_OFFSET_MOVED:
            found = int(reply.ext["nextBeginOffset"])
            if found <= asked:
                raise ClientError(f"offset {asked} is beyond the end of the queue, {found}")
            return b"", asked, min(found, stop)
        raise ReplyError(code, reply.remark or "the broker gave no reason")


def _cut(body: bytes | memoryview, stop: int) -> tuple[bytes | memoryview, int, None]:
    """Returns only the records before queue offset `stop`; brokers answer in their own portions."""
    for position, _, _ in walk(body, 0, len(body)):
        if HEAD.unpack_from(body, position)[5] >= stop:
            return memoryview(body)[:position], stop, None
    return body, stop, None


class Ack(NamedTuple):
    """A broker's answer to one batch."""

    tag: object
    """What `send` was given, to know which batch this is."""
    status: int
    """SUCCESS, FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE."""
    queue_id: int
    queue_offset: int
    """Of the first element."""
    message_ids: str


STORED_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


class BatchSender:
    """Sends batches (see `codec.batch.encode_batch`) to one master, `depth` of them unanswered at most."""

    def __init__(
        self,
        address: str,
        *,
        group: str = "TANDEMQ_BULK",
        timeout: float = 10.0,
        depth: int = 16,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._link = BlockingLink(address, timeout=timeout, credentials=credentials, tls=tls, clock=self._clock)
        self._group = group
        self._depth = depth
        self._under_way: deque[tuple[object, int]] = deque()

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> "BatchSender":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unanswered(self) -> int:
        """How many sends wait for their answer."""
        return len(self._under_way)

    def send(
        self,
        topic: str,
        queue_id: int,
        batch: bytes,
        *,
        tag: object = None,
        properties: str = "WAIT\x01true\x02",
        sys_flag: int = 0,
        queues: int = 4,
        single: bool = False,
    ) -> list[Ack]:
        """Sends one batch; returns the answers that are due: none until `depth` are under way, then one a call.

        `single` sends the body as one ordinary message instead of a batch. ReplyError when a broker refused one.
        """
        acks = [self.answer()] if self.unanswered >= self._depth else []
        self.post(
            topic, queue_id, batch, tag=tag, properties=properties, sys_flag=sys_flag, queues=queues, single=single
        )
        return acks

    def post(
        self,
        topic: str,
        queue_id: int,
        batch: bytes,
        *,
        tag: object = None,
        properties: str = "WAIT\x01true\x02",
        sys_flag: int = 0,
        queues: int = 4,
        single: bool = False,
    ) -> None:
        """Sends one batch; its answer is taken with `answer`. `queues` is what a topic made by this send gets."""
        fields = {
            "a": self._group,
            "b": topic,
            "c": AUTO_CREATE_TOPIC,
            "d": str(queues),
            "e": str(queue_id),
            "f": str(sys_flag),
            "g": str(self._clock.wall_ms()),
            "h": "0",
            "i": properties,
            "j": "0",
            "k": "false",
            "m": "false" if single else "true",
        }
        code = RequestCode.SEND_MESSAGE_V2 if single else RequestCode.SEND_BATCH_MESSAGE
        self._under_way.append((tag, self._link.send(code, fields, batch)))

    def flush(self) -> list[Ack]:
        """Waits for every answer still missing."""
        return [self.answer() for _ in range(len(self._under_way))]

    def answer(self) -> Ack:
        """Waits for the answer to the oldest send; ReplyError if the broker refused it, and goes on."""
        tag, opaque = self._under_way[0]
        reply = self._link.wait(opaque)
        self._under_way.popleft()
        if reply.code not in STORED_CODES:
            raise ReplyError(reply.code, reply.remark or "the broker gave no reason")
        ext = reply.ext
        return Ack(tag, reply.code, int(ext["queueId"]), int(ext["queueOffset"]), ext.get("msgId", ""))


__all__ = ["Ack", "BatchSender", "BlockingLink", "Chunk", "Credentials", "QueueReader"]
