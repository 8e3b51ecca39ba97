"""CONSUMER_SEND_MSG_BACK: a consumer could not handle a message; it comes again later, or goes to the dead letters.

The copy waits in the schedule topic for level 3 + times tried (or the level the consumer asks for), then lies in
%RETRY%group, which every member of the group reads. After the last try it goes to %DLQ%group, which nobody reads by
itself. Order of checks and remarks: upstream's AbstractSendMessageProcessor.consumerSendMsgBack.
"""

import random
from collections.abc import Callable

from tandemq.broker.live_config import LiveConfig
from tandemq.broker.new_message import NewMessage
from tandemq.broker.replies import bool_field, int_field, text_field
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.broker.telemetry.traffic import BrokerStats
from tandemq.broker.writer import MessageWriter
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import CodecError, OffsetOutOfRange, ReplyError
from tandemq.formats.envelope import Enveloped
from tandemq.model.message import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT, StoredMessage
from tandemq.model.topic import DLQ_PREFIX, PERM_WRITE, RETRY_PREFIX, SubscriptionGroupConfig, is_internal_topic
from tandemq.remoting.access.needs import SUB, needs, on_group, on_topic, require, topic_need
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.replication.acks import PutStatus
from tandemq.store.message_store import MessageStore

MAX_RECONSUME_SINCE = 121
"""V3_4_9: older clients' maxReconsumeTimes is not honoured."""
FIRST_DELAY_LEVEL = 3
HAS_UNIT_SUB = 2
"""topicSysFlag of a retry topic whose group runs in unit mode."""


class SendBackHandlers:
    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        writer: MessageWriter,
        topics: TopicTable,
        groups: GroupTable,
        stats: BrokerStats,
        *,
        is_slave: Callable[[], bool],
    ) -> None:
        self._live = live
        self._is_slave = is_slave
        self._store = store
        self._writer = writer
        self._topics = topics
        self._groups = groups
        self._stats = stats

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    @needs(on_group("group", SUB), on_topic("originTopic", SUB, if_given=True))
    def send_back(self, connection: Connection, command: Command) -> bytes | None:
        ext = command.ext
        group = self._group(text_field(ext, "group"))
        if group.retry_queues <= 0:
            return encode_response(command.opaque, ResponseCode.SUCCESS)
        message = self._message(int_field(ext, "offset"))
        if is_internal_topic(message.topic, self._live.broker.cluster_name):
            # No consumer was ever given such a record.
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {message.physical_offset}")
        require(command, topic_need(message.topic, SUB))
        properties = {**message.properties}
        origin = properties.setdefault(RETRY_TOPIC, message.topic)
        properties[WAIT] = "false"
        properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
        tries_max = group.retry_max_times
        if command.version >= MAX_RECONSUME_SINCE:
            tries_max = int_field(ext, "maxReconsumeTimes", tries_max)
        level = int_field(ext, "delayLevel", 0)
        if message.reconsume_times >= tries_max or level < 0:
            topic, queue_id = DLQ_PREFIX + group.name, 0
            self._topics.create_internal(topic, 1)
            properties[DELAY] = "0"
        else:
            topic, queue_id = self._retry_queue(group, bool_field(ext, "unitMode"))
            properties[DELAY] = str(level or FIRST_DELAY_LEVEL + message.reconsume_times)

        def done(status: PutStatus, reason: str) -> None:
            ok = status is PutStatus.PUT_OK
            code = ResponseCode.SUCCESS if ok else ResponseCode.SYSTEM_ERROR
            if ok:
                self._stats.send_back_flow(origin, group.name).add(1, message.size)
            connection.send(encode_response(command.opaque, code, None if ok else f"{status.name} {reason}".strip()))

        copied = NewMessage.copy_of(message, Enveloped(topic, queue_id, message.sys_flag, properties))
        copied.reconsume_times += 1
        copied.prepared_transaction_offset = 0
        self._writer.put_soon(copied, (lambda status, reason: None) if command.is_oneway else done)
        return None

    def _group(self, name: str) -> SubscriptionGroupConfig:
        config = self._live.broker
        if self._is_slave():
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR,
                f"no master available along with {config.broker_name}: this broker is a slave",
            )
        group = self._groups.find_or_create(name)
        if group is None:
            raise ReplyError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}")
        if not config.broker_permission & PERM_WRITE:
            raise ReplyError(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_name}] sending message is forbidden"
            )
        return group

    def _message(self, offset: int) -> StoredMessage:
        try:
            return self._store.reader.read(offset)
        except (OffsetOutOfRange, CodecError):
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}") from None

    def _retry_queue(self, group: SubscriptionGroupConfig, unit_mode: bool) -> tuple[str, int]:
        topic = RETRY_PREFIX + group.name
        config = self._topics.create_internal(topic, group.retry_queues, sys_flag=HAS_UNIT_SUB if unit_mode else 0)
        if not config.perm & PERM_WRITE:
            raise ReplyError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        return topic, random.randrange(group.retry_queues)
