"""Bulk reading and writing over one blocking socket, for programs that move millions of messages (Spark tasks, tools).

No event loop and no object per message: `QueueReader` gives the raw records of a queue in large chunks, `BatchSender`
takes encoded batches. Both keep several requests under way on the connection. Not for threads: one owner each.

    with QueueReader("10.0.0.1:10911", group="audit") as reader:
        for chunk, next_offset in reader.read("orders", 0, start, stop): ...   # chunk: concatenated records
"""

import ssl
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tandemq.client.blocking_link import BlockingLink, Credentials
from tandemq.clock import Clock, SystemClock
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.record import HEAD, walk
from tandemq.errors import ClientError, NoRoute, ReplyError
from tandemq.model.topic import AUTO_CREATE_TOPIC

PULL_COUNT = 4096
"""Messages asked for in one pull. RocketMQ caps an answer at limits of its own (32 messages), ours gives more."""
_SUBSCRIPTION_FLAG = "4"


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
        """[first, next) offsets the queue has now."""
        fields = {"topic": topic, "queueId": str(queue_id)}
        asked = [self._link.send(code, fields) for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)]
        low, high = (int(self._link.wait(opaque).raise_for_code().ext["offset"]) for opaque in asked)
        return max(0, low), high

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first message stored at or after a time."""
        fields = {"topic": topic, "queueId": str(queue_id), "timestamp": str(timestamp_ms)}
        reply = self._link.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        return int(reply.raise_for_code().ext["offset"])

    def read(
        self,
        topic: str,
        queue_id: int,
        start: int,
        stop: int,
        *,
        on_gap: Callable[[int, int], None] | None = None,
    ) -> Iterator[Chunk]:
        """Every record with an offset in [start, stop), in order.

        Where the next pull begins is known only when the one before is answered. So the first answer shows how many
        messages fit, later pulls ask for that many and are sent ahead; an answer that comes out shorter makes those
        ahead of it worthless, and they are asked again. `on_gap(expected, found)` is told when offsets are missing
        because the broker deleted them; without it that is a ClientError.
        """
        position = start
        count, ahead = self._count, 1
        under_way: deque[tuple[int, int, int]] = deque()
        """(offset asked for, count asked for, opaque), in offset order, without gaps."""
        while position < stop:
            following = under_way[-1][0] + under_way[-1][1] if under_way else position
            while len(under_way) < ahead and following < stop:
                wanted = min(count, stop - following)
                under_way.append((following, wanted, self._ask(topic, queue_id, following, wanted)))
                following += wanted
            asked, wanted, opaque = under_way.popleft()
            records, position_next, first = self._chunk(self._link.wait(opaque), asked, stop)
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
            if got != wanted:
                self._drop(under_way)
                # Cut by size: a little less next time, so that messages of about this size come in full counts.
                by_size = len(records) > self._size_max // 2
                count = max(1, got * 7 // 8 if by_size else got)
            ahead = self._depth
            yield Chunk(records, position)
        self._drop(under_way)

    def _drop(self, under_way: deque[tuple[int, int, int]]) -> None:
        """Answers that are of no use any more still come: they are taken and thrown away."""
        for _, _, opaque in under_way:
            self._link.wait(opaque)
        under_way.clear()

    def _ask(self, topic: str, queue_id: int, offset: int, count: int) -> int:
        fields = {
            "consumerGroup": self._group,
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(count),
            "sysFlag": _SUBSCRIPTION_FLAG,
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
            "maxMsgBytes": str(self._size_max),
        }
        return self._link.send(RequestCode.PULL_MESSAGE, fields)

    def _chunk(self, reply: Command, asked: int, stop: int) -> tuple[bytes | memoryview, int, int | None]:
        """(records before `stop`, next offset, where the queue begins if `asked` is gone)."""
        code = reply.code
        if code == ResponseCode.SUCCESS:
            next_offset = int(reply.ext["nextBeginOffset"])
            body = reply.body
            return (body, next_offset, None) if next_offset <= stop else _cut(body, stop)
        if code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
            return b"", max(asked, int(reply.ext.get("nextBeginOffset", asked))), None
        if code == ResponseCode.PULL_OFFSET_MOVED:
            found = int(reply.ext["nextBeginOffset"])
            if found <= asked:
                raise ClientError(f"offset {asked} is beyond the end of the queue, {found}")
            return b"", asked, found
        raise ReplyError(code, reply.remark or "the broker gave no reason")


def _cut(body: bytes | memoryview, stop: int) -> tuple[bytes | memoryview, int, None]:
    """Records before queue offset `stop` only; brokers answer in their own portions."""
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
        """Sends one batch and gives the answers that are due: none until `depth` are under way, then one a call.

        `single` sends the body as one ordinary message instead of a batch. ReplyError when a broker refused one.
        """
        acks = [self._take()] if len(self._under_way) >= self._depth else []
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
        return acks

    def flush(self) -> list[Ack]:
        """Waits for every answer still missing."""
        return [self._take() for _ in range(len(self._under_way))]

    def _take(self) -> Ack:
        tag, opaque = self._under_way.popleft()
        reply = self._link.wait(opaque)
        if reply.code not in STORED_CODES:
            raise ReplyError(reply.code, reply.remark or "the broker gave no reason")
        ext = reply.ext
        return Ack(tag, reply.code, int(ext["queueId"]), int(ext["queueOffset"]), ext.get("msgId", ""))


def reader_address(addresses: dict[int, str], prefer: str = "slave") -> str:
    """Which member of a broker group to read: a slave, so that the master is not loaded, or the master."""
    if not addresses:
        raise NoRoute("a broker group without any address can't be read")
    slaves = [address for broker_id, address in sorted(addresses.items()) if broker_id]
    master = addresses.get(0)
    if prefer == "slave" and slaves:
        return slaves[0]
    return master or slaves[0]


__all__ = ["Ack", "BatchSender", "BlockingLink", "Chunk", "Credentials", "QueueReader", "reader_address"]
