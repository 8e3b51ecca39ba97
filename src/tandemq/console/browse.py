"""Finds messages: the newest, from a time or an offset, by key, id, tag or text of the body. Bounded in every way."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tandemq.client.admin import Admin
from tandemq.client.message import ReceivedMessage, decode_messages
from tandemq.clock import Clock
from tandemq.codec.heartbeat import Subscription
from tandemq.errors import ClientError, NoRoute, TandemError
from tandemq.model.topic import QueueRef

LISTED_MAX = 50
GROUP = "TANDEMQ_CONSOLE_READER"
"""Pulls need a group's name; no offset is ever committed for it."""
SCANNED_MAX = 20_000
"""Messages looked through for a tag or a text."""
SCAN_SECONDS = 4.0
_AT_ONCE = 32
_QUEUES_AT_ONCE = 64

Look = Callable[[QueueRef], Awaitable[list[ReceivedMessage]]]


@dataclass(frozen=True, slots=True)
class Found:
    messages: tuple[ReceivedMessage, ...]
    told: str = ""
    """What was done to find them, and what was left out."""
    older_ms: int | None = None
    """Where the list goes on into the past."""
    newer_ms: int | None = None
    problems: tuple[str, ...] = ()


class Browser:
    """Reads as an administrator: no offsets, no membership."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._session = admin.session
        self._clock = clock

    async def queues(self, topic: str, only: str = "") -> list[QueueRef]:
        """Returns the queues to read; `only` is `broker/number`."""
        found = list(await self._admin.queues(topic))
        if not found:
            raise NoRoute(f"topic {topic!r} has no queue that can be read: its perm forbids, or no broker of it is up")
        if only:
            broker, _, number = only.rpartition("/")
            chosen = [queue for queue in found if queue.broker_name == broker and str(queue.queue_id) == number]
            if not chosen:
                raise ClientError(f"queue {only!r}: {topic} has {', '.join(_name(queue) for queue in found[:8])}")
            return chosen
        return found

    async def newest(self, topic: str, only: str = "", until_ms: int | None = None) -> Found:
        """Returns the newest messages, or the newest of those stored before a moment."""
        queues = await self.queues(topic, only)
        share = max(4, min(LISTED_MAX, 4 * LISTED_MAX // len(queues)))

        async def tail(queue: QueueRef) -> list[ReceivedMessage]:
            low, high = await self._admin.queue_range(queue)
            if until_ms is not None:
                high = max(low, min(high, await self._admin.offset_at(queue, until_ms)))
            return await self.read(queue, max(low, high - share), high)

        found, problems = await self._all(queues, tail)
        if until_ms is not None:
            found = [message for message in found if message.store_timestamp < until_ms]
        listed = heapq.nlargest(LISTED_MAX, found, key=lambda m: (m.store_timestamp, m.queue_offset))
        older = listed[-1].store_timestamp if len(listed) >= min(LISTED_MAX, share) else None
        return Found(tuple(listed), f"newest of {len(queues)} queues", older_ms=older, problems=problems)

    async def since(self, topic: str, from_ms: int, only: str = "") -> Found:
        """Returns the first messages stored at or after a moment."""
        queues = await self.queues(topic, only)
        share = max(4, min(LISTED_MAX, 4 * LISTED_MAX // len(queues)))

        async def head(queue: QueueRef) -> list[ReceivedMessage]:
            start = await self._admin.offset_at(queue, from_ms)
            return await self.read(queue, start, start + share)

        found, problems = await self._all(queues, head)
        listed = heapq.nsmallest(LISTED_MAX, found, key=lambda m: (m.store_timestamp, m.queue_offset))
        newer = listed[-1].store_timestamp + 1 if len(listed) >= min(LISTED_MAX, share) else None
        return Found(tuple(listed), f"first of {len(queues)} queues", newer_ms=newer, problems=problems)

    async def at(self, topic: str, only: str, offset: int) -> Found:
        """Returns messages of one queue from an offset on."""
        (queue,) = (await self.queues(topic, only))[:1]
        low, high = await self._admin.queue_range(queue)
        start = max(low, min(offset, high))
        listed = await self.read(queue, start, start + LISTED_MAX)
        return Found(tuple(listed), f"{_name(queue)} has offsets {low:,} to {high:,}, the last excluded")

    async def by_key(self, topic: str, key: str) -> Found:
        found = await self._admin.messages_by_key(topic, key, count_max=LISTED_MAX)
        return Found(tuple(reversed(found)), f"by the index, at most {LISTED_MAX}")

    async def by_id(self, topic: str, message_id: str) -> Found:
        return Found((await self._admin.message_by_id(message_id, topic or None),), "by its id")

    async def scan(self, topic: str, only: str, *, tag: str = "", text: str = "") -> Found:
        """Looks through the newest messages, backwards, for a tag or a text of the body."""
        queues = await self.queues(topic, only)
        deadline = self._clock.monotonic() + SCAN_SECONDS
        wanted = text.encode()
        subscription = Subscription(topic=topic, expression=tag) if tag else Subscription(topic=topic)
        share = SCANNED_MAX // len(queues)
        examined = 0

        async def look(queue: QueueRef) -> list[ReceivedMessage]:
            nonlocal examined
            hits: list[ReceivedMessage] = []
            low, high = await self._admin.queue_range(queue)
            floor = max(low, high - share)
            while high > floor and len(hits) < LISTED_MAX and self._clock.monotonic() < deadline:
                start = max(floor, high - 8 * _AT_ONCE)
                found = await self.read(queue, start, high, subscription)
                examined += high - start
                hits += [m for m in reversed(found) if _fits(m, tag, wanted)]
                high = start
            return hits

        found, problems = await self._all(queues, look)
        listed = heapq.nlargest(LISTED_MAX, found, key=lambda m: (m.store_timestamp, m.queue_offset))
        told = f"looked through the newest {examined:,} messages"
        return Found(tuple(listed), told, problems=problems)

    async def one(self, topic: str, only: str, offset: int) -> ReceivedMessage:
        """Returns the message at a place."""
        (queue,) = (await self.queues(topic, only))[:1]
        return await self._admin.message_at(queue, offset)

    async def read(
        self, queue: QueueRef, start: int, stop: int, subscription: Subscription | None = None
    ) -> list[ReceivedMessage]:
        """Returns the messages of `[start, stop)` that are there."""
        address = await self._session.any_address(queue.broker_name, queue.topic)
        found: list[ReceivedMessage] = []
        wanted = subscription or Subscription(topic=queue.topic)
        while start < stop:
            result = await self._session.api.pull(
                address, GROUP, queue, start, count_max=min(_AT_ONCE, stop - start), subscription=wanted,
                timeout_ms=self._session.config.api_timeout_ms,
            )  # fmt: skip
            if result.found:
                found += [m for m in decode_messages(result.records, queue.broker_name) if m.queue_offset < stop]
            if result.next_offset <= start:
                break
            start = result.next_offset
        return found

    async def _all(self, queues: Sequence[QueueRef], work: Look) -> tuple[list[ReceivedMessage], tuple[str, ...]]:
        """Runs the work for every queue; one that fails is told, the rest is shown."""
        answers = await asyncio.gather(
            *(work(queue) for queue in queues[:_QUEUES_AT_ONCE]),
            return_exceptions=True,
        )
        found: list[ReceivedMessage] = []
        problems: dict[str, str] = {}
        for queue, answer in zip(queues, answers, strict=False):
            if isinstance(answer, TandemError):
                problems[queue.broker_name] = f"{queue.broker_name}: {answer}"
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += answer
        if len(queues) > _QUEUES_AT_ONCE:
            problems[""] = f"the first {_QUEUES_AT_ONCE} of {len(queues)} queues are shown: choose a queue"
        return found, tuple(problems.values())


def _fits(message: ReceivedMessage, tag: str, wanted: bytes) -> bool:
    if tag and message.tags != tag:
        return False
    if not wanted:
        return True
    try:
        return wanted in message.body
    except TandemError:
        return wanted in message.stored.body


def _name(queue: QueueRef) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"
