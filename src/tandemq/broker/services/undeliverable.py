"""Where a message goes that a service of the broker can't deliver, and never will: aside, with the reason.

It must not hold up those after it, and it was acknowledged, so it is not dropped either. It becomes a dead letter of a
group of its own: `tandemq dlq list TANDEMQ_UNDELIVERABLE` shows it.
"""

import logging
from collections.abc import Callable

from tandemq.broker.new_message import NewMessage
from tandemq.broker.writer import MessageWriter
from tandemq.errors import MessageTooLarge
from tandemq.formats.envelope import Enveloped
from tandemq.formats.record import PROPERTIES_MAX
from tandemq.model.message import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    KEYS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    UNIQUE_KEY,
    StoredMessage,
    encode_properties,
)
from tandemq.model.topic import DLQ_PREFIX

log = logging.getLogger(__name__)

UNDELIVERABLE_TOPIC = f"{DLQ_PREFIX}TANDEMQ_UNDELIVERABLE"
REASON = "TANDEMQ_REASON"
REASON_CHARACTERS_MAX = 400
_ESSENTIAL = (UNIQUE_KEY, KEYS, REAL_TOPIC, REAL_QUEUE_ID)


class Undeliverable:
    """Puts messages aside."""

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer
        self.ensure_topic: Callable[[str], object] = lambda topic: None
        """Has the topic of these messages in the broker's table."""
        self.kept = 0

    def keep(self, message: StoredMessage, reason: str) -> int:
        """Appends the message as a dead letter. Returns the physical end of the copy.

        Raises what `MessageWriter.append` raises where trying again helps.
        """
        log.error("message %s can't be delivered and goes to %s: %s", message.message_id, UNDELIVERABLE_TOPIC, reason)
        self.ensure_topic(UNDELIVERABLE_TOPIC)
        why = {
            REASON: reason[:REASON_CHARACTERS_MAX],
            DLQ_ORIGIN_TOPIC: message.properties.get(REAL_TOPIC, message.topic),
            DLQ_ORIGIN_MESSAGE_ID: message.message_id,
        }
        some = {name: message.properties[name] for name in _ESSENTIAL if name in message.properties}
        for properties in ({**message.properties, **why}, {**some, **why}, why):
            if len(encode_properties(properties)) <= PROPERTIES_MAX:
                break
        place = Enveloped(UNDELIVERABLE_TOPIC, 0, message.sys_flag, properties)
        try:
            appended = self._writer.append(NewMessage.copy_of(message, place))
        except MessageTooLarge as error:
            log.error("message %s can't even be put aside: %s", message.message_id, error)
            return message.physical_offset
        self.kept += 1
        return appended.physical_offset + appended.size
