"""Request-reply: SEND_REPLY_MESSAGE brings an answer, PUSH_REPLY_MESSAGE_TO_CLIENT hands it to the client that asked.

The asking client is found by its id (property REPLY_TO_CLIENT) among the producers that sent a heartbeat to this broker
(all that upstream knows), or by the connection its request came by: a producer's first heartbeat may be half a minute
away. The answer is stored too when storeReplyMessageEnable says so (upstream's default).
"""

import logging
import random

from tandemq.broker.live_config import LiveConfig
from tandemq.broker.new_message import NewMessage
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.topics import TopicTable
from tandemq.broker.write_gate import WriteRefused
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.codec.send_header import SendHeader, send_header_of, topic_field
from tandemq.errors import RemotingError, ReplyError, StoreError
from tandemq.model.message import (
    REPLY_TO_CLIENT,
    decode_properties,
    encode_properties,
    offset_message_id,
)
from tandemq.model.topic import is_internal_topic, reply_topic, topic_name_problem
from tandemq.remoting.access.needs import PUB, Need, needs, topic_need
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler

log = logging.getLogger(__name__)

PUSH_TIMEOUT = 3.0
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"


def _answered_topic(command: Command) -> list[Need]:
    """Returns what an answer needs: to publish to its topic, which is the cluster's reply topic as a rule."""
    name = command.ext.get(topic_field(command.code), "")
    return [topic_need(name, PUB, made_for=True)]


class ReplyHandlers:
    def __init__(
        self,
        live: LiveConfig,
        writer: MessageWriter,
        topics: TopicTable,
        members: Members,
        clock: Clock,
        *,
        store_host: bytes,
        address: str,
    ) -> None:
        self._live = live
        self._writer = writer
        self._topics = topics
        self._members = members
        self._clock = clock
        self._store_host = store_host
        self._address = address

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.send_reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.send_reply,
        }

    @needs(_answered_topic)
    async def send_reply(self, connection: Connection, command: Command) -> bytes:
        send = send_header_of(command.ext, command.code, command.version)
        body = bytes(command.body)
        config = self._live.broker
        if (problem := topic_name_problem(send.topic)) is not None:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, problem)
        if send.topic != reply_topic(config.cluster_name) and is_internal_topic(send.topic, config.cluster_name):
            raise ReplyError(ResponseCode.NO_PERMISSION, f"sending to topic[{send.topic}] is forbidden")
        topic = self._topics.get(send.topic) or self._topics.create_on_send(
            send.topic, send.defaultTopic, send.defaultTopicQueueNums, unit_mode=send.unitMode
        )
        if topic is None:
            raise ReplyError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{send.topic}] not exist, apply first please!")
        queues = max(topic.write_queues, topic.read_queues)
        if send.queueId >= queues:
            raise ReplyError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{send.queueId}] is illegal, the topic {send.topic} has {queues} queues",
            )
        queue_id = send.queueId if send.queueId >= 0 else random.randrange(max(1, topic.write_queues))
        problem = await self._push(connection, send, body)
        ext = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.trace_on else "false",
            "msgId": "0",
            "queueId": str(queue_id),
            "queueOffset": "0",
        }
        if config.store_reply_message_enable:
            await self._store(connection, send, queue_id, body, ext)
        if problem is not None:
            return encode_response(command.opaque, ResponseCode.SYSTEM_ERROR, problem, ext)
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, ext)

    async def _push(self, connection: Connection, send: SendHeader, body: bytes) -> str | None:
        """Hands the answer to the client that waits for it; why not, if it could not be."""
        properties = decode_properties(send.properties.encode())
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        asker = self._members.find_asker(client_id)
        if asker is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = str(self._clock.wall_ms())
        ext = {
            "bornHost": connection.peer,
            "storeHost": self._address,
            "storeTimestamp": now,
            "producerGroup": send.producerGroup,
            "topic": send.topic,
            "defaultTopic": send.defaultTopic,
            "defaultTopicQueueNums": str(send.defaultTopicQueueNums),
            "queueId": str(send.queueId),
            "sysFlag": str(send.sysFlag),
            "bornTimestamp": str(send.bornTimestamp),
            "flag": str(send.flag),
            "properties": encode_properties({**properties, PUSH_REPLY_TIME: now}).decode(),
            "reconsumeTimes": str(send.reconsumeTimes),
            "unitMode": "true" if send.unitMode else "false",
        }
        try:
            answer = await asker.invoke(Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, body), PUSH_TIMEOUT)
        except RemotingError as error:
            return f"push reply message to {client_id} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: {answer.remark}"
        return None

    async def _store(
        self, connection: Connection, send: SendHeader, queue_id: int, body: bytes, ext: dict[str, str]
    ) -> None:
        """Failures are only logged: the answer has reached who waits for it."""
        try:
            put = await self._writer.put(
                NewMessage(
                    topic=send.topic,
                    queue_id=queue_id,
                    body=body,
                    properties=decode_properties(send.properties.encode()),
                    born_timestamp=send.bornTimestamp,
                    born_host=connection.peer_host_bytes,
                    flag=send.flag,
                    sys_flag=send.sysFlag,
                    reconsume_times=send.reconsumeTimes,
                )
            )
        except (StoreError, WriteRefused) as error:
            log.warning("a reply message was not stored: %s", error)
            return
        ext["msgId"] = offset_message_id(self._store_host, put.appended.physical_offset)
        ext["queueOffset"] = str(put.appended.queue_offset)
