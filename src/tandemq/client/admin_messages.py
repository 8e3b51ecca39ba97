"""Admin's part about single messages: by id, key or place."""

import socket

from tandemq.client.admin_base import ClusterAdmin
from tandemq.client.message import ReceivedMessage, decode_messages
from tandemq.codec.heartbeat import Subscription
from tandemq.errors import ClientError, RemotingError, ReplyError
from tandemq.model.message import parse_offset_message_id
from tandemq.model.topic import QueueRef


class MessageAdmin(ClusterAdmin):
    """Finds messages."""

    async def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """By offset id (names broker and place), or by UNIQ_KEY when the topic is given; ClientError if not found."""
        if topic is not None:
            found = await self.messages_by_key(topic, message_id, unique=True)
            if found:
                return found[0]
        try:
            host, offset = parse_offset_message_id(message_id)
        except ValueError as error:
            raise ClientError(f"{error}; to find a message by its unique key, give the topic too") from None
        address = _address_text(host)
        try:
            record = await self.session.api.view(address, offset, topic or "")
        except (RemotingError, ReplyError) as error:
            hint = "" if topic else "; if it is a unique key, give the topic too"
            raise ClientError(f"no message {message_id} on {address}: {error}{hint}") from error
        name = await self._broker_name(address)
        return next(decode_messages(record, name))

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
        """Messages with a key (or UNIQ_KEY), oldest first. The broker's index finds by hash: compared here again."""
        found: list[ReceivedMessage] = []
        for name, address in await self._readers(topic):
            records = await self.session.api.query(
                address, topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms, unique=unique
            )
            found += decode_messages(records, name)
        matching = [m for m in found if (m.message_id == key if unique else key in m.keys)]
        return sorted(matching, key=lambda m: (m.store_timestamp, m.queue))[:count_max]

    async def message_at(self, queue: QueueRef, offset: int) -> ReceivedMessage:
        """The message at a queue offset; ClientError says what the queue has."""
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
    """ "ip:port" of the host bytes in an offset id."""
    port = int.from_bytes(host[-4:], "big")
    if len(host) == 8:
        return f"{socket.inet_ntop(socket.AF_INET, host[:4])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, host[:16])}]:{port}"
