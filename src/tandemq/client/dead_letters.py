"""Dead letters of a consumer group: what it gave up on, in the topic %DLQ%group, and the way back.

A dead letter is sent again to the group's own retry topic, so that this group gets it and no other consumer of the
topic does; or, if that is wanted, to the topic it came from. How far a group's dead letters were sent again is kept as
the offset of a consumer group of ours, on the brokers.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tandemq.client.admin import Admin
from tandemq.client.encode import Outgoing
from tandemq.client.message import ReceivedMessage, SendResult, decode_messages
from tandemq.client.message_sender import send_once
from tandemq.codec.heartbeat import Subscription
from tandemq.errors import ClientError, NoRoute
from tandemq.model import message as names
from tandemq.model.message import COMPRESSED, COMPRESSION_MASK, encode_properties
from tandemq.model.topic import DLQ_PREFIX, RETRY_PREFIX, QueueRef

PROGRESS_GROUP = "TANDEMQ_DLQ_RESEND"
_PULLED = 32
_DROPPED = frozenset(
    {
        names.DELAY, names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES, names.TRANSACTION_PREPARED_FLAG, names.WAIT,
        names.REAL_TOPIC, names.REAL_QUEUE_ID, names.DLQ_ORIGIN_TOPIC, names.DLQ_ORIGIN_MESSAGE_ID,
    }
)  # fmt: skip
"""Properties that belong to the life that ended in the dead letters."""


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """How many dead letters of a group there are."""

    group: str
    count: int
    last_ms: int


class DeadLetters:
    """Lists and sends again, through an Admin client."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._session = admin.session

    async def groups(self) -> list[DeadLetterCount]:
        """Returns the groups that have dead letters."""
        found = []
        for topic in await self._admin.topics():
            if topic.startswith(DLQ_PREFIX):
                statuses = await self._admin.topic_status(topic)
                count = sum(status.count for status in statuses)
                last = max((status.last_update_ms for status in statuses), default=0)
                found.append(DeadLetterCount(topic.removeprefix(DLQ_PREFIX), count, last))
        return found

    async def queues(self, group: str) -> tuple[QueueRef, ...]:
        """Returns the queues of a group's dead letters; none if it never had any."""
        try:
            queues = await self._admin.queues(DLQ_PREFIX + group)
        except NoRoute:
            if group not in await self._admin.groups():
                raise ClientError(
                    f"group {group!r} is not known to any broker; `tandemq group list` shows those that are"
                ) from None
            return ()
        if not queues:
            raise ClientError(
                f"the dead letters of {group} can't be read: their topic has no read permission; "
                f"`tandemq topic create '{DLQ_PREFIX}{group}' --perm rw` gives it"
            )
        return queues

    async def read(self, queue: QueueRef, first: int = 0) -> AsyncIterator[ReceivedMessage]:
        """Yields the dead letters of a queue that are there now."""
        address = await self._session.any_address(queue.broker_name, queue.topic)
        offset, end = first, (await self._admin.queue_range(queue))[1]
        while offset < end:
            result = await self._session.api.pull(
                address,
                PROGRESS_GROUP,
                queue,
                offset,
                count_max=_PULLED,
                subscription=Subscription(topic=queue.topic),
                timeout_ms=self._session.config.api_timeout_ms,
            )
            if result.found:
                for message in decode_messages(result.records, queue.broker_name):
                    if message.queue_offset < end:
                        yield message
            if result.next_offset <= offset:
                return
            offset = result.next_offset

    async def progress(self, queue: QueueRef) -> int:
        """Returns the offset up to which this queue was sent again."""
        address = await self._session.master(queue.broker_name, queue.topic)
        found = await self._session.api.query_offset(address, PROGRESS_GROUP, queue)
        return max(0, found if found is not None else 0)

    async def resend(
        self,
        group: str,
        *,
        wanted: Callable[[ReceivedMessage], bool] = lambda message: True,
        again: bool = False,
        to_topic: bool = False,
        limit: int = 0,
        dry_run: bool = False,
    ) -> AsyncIterator[tuple[ReceivedMessage, SendResult | None]]:
        """Sends dead letters again, those since the last time or all of them; yields each with its result.

        Progress moves forward only, and only past messages that were sent with none before them left out.
        """
        given = 0
        for queue in await self.queues(group):
            done = max(await self.progress(queue), (await self._admin.queue_range(queue))[0])
            async for message in self.read(queue, 0 if again else done):
                if not wanted(message):
                    continue
                if limit and given >= limit:
                    return
                given += 1
                result = None if dry_run else await self.send(group, message, to_topic=to_topic)
                yield message, result
                if result is not None and message.queue_offset == done:
                    done += 1
                    await self._admin.set_offset(PROGRESS_GROUP, queue, done)

    async def send(self, group: str, message: ReceivedMessage, *, to_topic: bool) -> SendResult:
        """Sends one dead letter again: to its group alone, or to the topic it came from."""
        origin = message.properties.get(names.DLQ_ORIGIN_TOPIC) or message.topic
        if origin.startswith(DLQ_PREFIX):
            raise ClientError(f"dead letter {message.message_id} does not say which topic it came from")
        properties = {name: value for name, value in message.properties.items() if name not in _DROPPED}
        if to_topic:
            properties.pop(names.RETRY_TOPIC, None)
        else:
            properties[names.RETRY_TOPIC] = origin
        stored = message.stored
        item = Outgoing(
            origin if to_topic else RETRY_PREFIX + group,
            stored.body,
            encode_properties(properties).decode(),
            stored.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            stored.flag,
            message.message_id,
        )
        return await send_once(self._session, PROGRESS_GROUP, item)
