"""Admin's part about single messages: by id, key or place."""

import asyncio
import socket

from tandemq.client.admin_base import ClusterAdmin
from tandemq.client.message import ReceivedMessage, decode_messages
from tandemq.codec import bodies
from tandemq.codec.codes import RequestCode
from tandemq.codec.heartbeat import Subscription
from tandemq.errors import ClientError, RemotingError, ReplyError
from tandemq.model.message import parse_offset_message_id
from tandemq.model.topic import QueueRef

_TOPICS_AT_A_TIME = 32
"""Topics that are searched side by side for a unique id."""


class MessageAdmin(ClusterAdmin):
    """Finds messages."""

    async def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """Finds a message by its offset id, which names broker and place, or by its unique id, which producers give.

        Both look alike. A unique id is looked for in the topic, or without one in all topics. ClientError if there is
        no such message.
        """
        if topic is not None:
            found = await self.messages_by_key(topic, message_id, unique=True)
            if found:
                return found[0]
        try:
            host, offset = parse_offset_message_id(message_id)
        except ValueError as error:
            raise ClientError(str(error)) from None
        address = _address_text(host)
        name = await self._broker_name(address)
        if name:
            try:
                return next(decode_messages(await self.session.api.view(address, offset, topic or ""), name))
            except (RemotingError, ReplyError) as error:
                raise ClientError(f"no message {message_id} on {address}: {error}") from error
        if topic is None and (anywhere := await self._by_unique_id(message_id)) is not None:
            return anywhere
        where = f"in topic {topic}" if topic is not None else "in any topic"
        raise ClientError(f"no message {message_id} {where}, and no broker of the cluster is {address}")

    async def _by_unique_id(self, unique_id: str) -> ReceivedMessage | None:
        reply = await self.session.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        topics = sorted(bodies.texts_of(bodies.load_object(reply.body, "topic list").get("topicList"), "topicList"))
        for start in range(0, len(topics), _TOPICS_AT_A_TIME):
            part = topics[start : start + _TOPICS_AT_A_TIME]
            answers = await asyncio.gather(
                *(self.messages_by_key(topic, unique_id, unique=True) for topic in part), return_exceptions=True
            )
            for answer in answers:
                if isinstance(answer, list) and answer:
                    return answer[0]
        return None

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 64,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        unique: bool = False,
    ) -> list[ReceivedMessage]:
        """Returns messages with a key (or UNIQ_KEY), oldest first.

        Compares here, because the broker's index finds by hash.
        """
        found: list[ReceivedMessage] = []
        for name, address in await self._readers(topic):
            records = await self.session.api.query(
                address, topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms, unique=unique
            )
            found += decode_messages(records, name)
        matching = [m for m in found if (m.message_id == key if unique else key in m.keys)]
        return sorted(matching, key=lambda m: (m.store_timestamp, m.queue))[:count_max]

    async def message_at(self, queue: QueueRef, offset: int) -> ReceivedMessage:
        """Returns the message at a queue offset; raises ClientError, which says what the queue has."""
        address = await self.session.any_address(queue.broker_name, queue.topic)
        result = await self.session.api.pull(
            address,
            "TANDEMQ_ADMIN",
            queue,
            offset,
            count_max=1,
            subscription=Subscription(topic=queue.topic),
            timeout_ms=self.session.config.api_timeout_ms,
        )
        if not result.found:
            raise ClientError(
                f"{queue.topic}/{queue.broker_name}/{queue.queue_id} has offsets [{result.min_offset}, "
                f"{result.max_offset}), {offset} is none of them"
            )
        return next(decode_messages(result.records, queue.broker_name))

    async def _broker_name(self, address: str) -> str:
        groups = (await self.cluster()).groups.values()
        return next((group.name for group in groups if address in group.addresses.values()), "")


def _address_text(host: bytes) -> str:
    """Returns "ip:port" of the host bytes in an offset id."""
    port = int.from_bytes(host[-4:], "big")
    if len(host) == 8:
        return f"{socket.inet_ntop(socket.AF_INET, host[:4])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, host[:16])}]:{port}"
