"""Gives messages back that a listener could not handle: to the broker, which delays them and counts the tries.

When the broker refuses or does not answer, the message is sent as a new one to the group's retry topic, to any broker
that takes it. Either way it comes back through `%RETRY%group`, or goes to `%DLQ%group` after the last try.
"""

import logging

from tandemq.client.encode import Outgoing
from tandemq.client.message import ReceivedMessage
from tandemq.client.message_sender import send_once
from tandemq.client.session import Session
from tandemq.errors import TandemError
from tandemq.model import message as names
from tandemq.model.message import COMPRESSED, COMPRESSION_MASK, encode_properties
from tandemq.model.topic import RETRY_PREFIX

log = logging.getLogger("tandemq.client")

INNER_GROUP = "CLIENT_INNER_PRODUCER"
"""The producer group of messages that a consumer sends by itself, as upstream names it."""
FIRST_DELAY_LEVEL = 3


class SendBack:
    """Gives messages of one consumer group back."""

    def __init__(self, session: Session, group: str, times_max: int) -> None:
        self._session = session
        self._group = group
        self._times_max = times_max

    async def later(self, message: ReceivedMessage) -> bool:
        """Asks for another delivery, after a delay that grows; returns whether somebody took the message."""
        return await self._by_broker(message, 0) or await self._as_new_message(message)

    async def give_up(self, message: ReceivedMessage) -> bool:
        """Puts a message into the dead letter queue; returns whether the broker took it."""
        return await self._by_broker(message, -1)

    async def _by_broker(self, message: ReceivedMessage, level: int) -> bool:
        try:
            await self._session.ask_master(
                message.broker_name,
                message.stored.topic,
                lambda address: self._session.api.send_back(
                    address,
                    self._group,
                    physical_offset=message.stored.physical_offset,
                    message_id=message.message_id,
                    topic=message.topic,
                    level=level,
                    max_times=self._times_max,
                ),
            )
            return True
        except TandemError as error:
            log.warning("%s was not taken back by its broker: %s", message, error)
            return False

    async def _as_new_message(self, message: ReceivedMessage) -> bool:
        times = message.reconsume_times + 1
        properties = {
            **message.properties,
            names.RETRY_TOPIC: message.topic,
            names.RECONSUME_TIME: str(times),
            names.MAX_RECONSUME_TIMES: str(self._times_max),
            names.DELAY: str(FIRST_DELAY_LEVEL + message.reconsume_times),
        }
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        properties.pop(names.TRANSACTION_PREPARED_FLAG, None)
        stored = message.stored
        item = Outgoing(
            RETRY_PREFIX + self._group,
            stored.body,
            encode_properties(properties).decode(),
            stored.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            stored.flag,
            message.message_id,
            reconsume_times=times,
            max_reconsume_times=self._times_max,
        )
        try:
            await send_once(self._session, INNER_GROUP, item)
            return True
        except TandemError as error:
            log.error("%s could not be sent to the retry topic either: %s", message, error)
            return False
