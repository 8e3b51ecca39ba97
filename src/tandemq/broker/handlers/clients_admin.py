"""Requests about connected clients: who is there, and questions handed on to one of them."""

import logging
from collections.abc import Iterable
from typing import Any

from tandemq.broker.long_answers import LongAnswer, member
from tandemq.broker.replies import text_field
from tandemq.broker.subscriptions import subscription_to_json
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.members import ConsumerGroup, Member, Members
from tandemq.broker.tables.topics import TopicTable
from tandemq.clock import Clock
from tandemq.codec import bodies, fastjson
from tandemq.codec.acl import without_signature
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import CodecError, OffsetOutOfRange, RemotingError, ReplyError, RequestTimeout
from tandemq.formats.record import parse_record
from tandemq.model.message import parse_offset_message_id
from tandemq.remoting.access.needs import GET, SUB, needs, on_cluster, on_group, on_topic, require, topic_need
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

CLIENT_TIMEOUT = 10.0
"""How long a client may take to answer a question that was handed on; ali-ons never answers."""
RUNNING_INFO_SINCE = 62
"""V3_1_8_SNAPSHOT: older clients don't know 307 and 309."""


class ClientAdminHandlers:
    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        members: Members,
        clock: Clock,
        *,
        broker_name: str,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._members = members
        self._clock = clock
        self._broker_name = broker_name

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
        }

    @needs(on_group("consumerGroup", GET))
    async def consumers(self, connection: Connection, command: Command) -> bytes:
        group = self._members.consumer_group(text_field(command.ext, "consumerGroup"))
        if group is None:
            name = command.ext["consumerGroup"]
            raise ReplyError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        head = {
            "connectionSet": _connections(group.members.values()),
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
        }
        answer, known = LongAnswer(self._clock), list(group.subscriptions.items())
        table = await answer.joined(member(topic, subscription_to_json(found)) for topic, found in known)
        start = fastjson.dumps_unquoted(head)[:-1]
        return answer.encoded(command, b'%b,"subscriptionTable":{%b}}' % (start, table))

    @needs(on_cluster(GET))
    def producers(self, connection: Connection, command: Command) -> bytes:
        name = text_field(command.ext, "producerGroup")
        members = self._members.producers(name)
        if not members:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return _json(command, {"connectionSet": _connections(members)})

    @needs(on_cluster(GET))
    async def all_producers(self, connection: Connection, command: Command) -> bytes:
        """Lists producers with their age, because members know monotonic times and administrators read wall clocks."""
        now, wall = self._clock.monotonic(), self._clock.wall_ms()

        def told(one: Member) -> dict[str, Any]:
            return {
                "clientId": one.client_id,
                "language": one.language,
                "lastUpdateTimestamp": wall - int((now - one.seen) * 1000),
                "remoteIP": one.connection.peer,
                "version": one.version,
            }

        answer, groups = LongAnswer(self._clock), list(self._members.producer_groups())
        data = await answer.joined(member(name, list(map(told, self._members.producers(name)))) for name in groups)
        return answer.encoded(command, b'{"data":{%b}}' % data)

    @needs(on_group("consumerGroup", GET))
    async def running_info(self, connection: Connection, command: Command) -> bytes:
        return await self._call(command, without_signature(command.ext), b"")

    @needs(on_group("consumerGroup", SUB), on_topic("topic", SUB, if_given=True), audited=True)
    async def consume_directly(self, connection: Connection, command: Command) -> bytes:
        """Gives one message of the log to a client to consume now (mqadmin consumeMessage, queryMsgById -g)."""
        ext = {**without_signature(command.ext), "brokerName": self._broker_name}
        if (topic := self._topics.get(ext.get("topic", ""))) is not None:
            ext["topicSysFlag"] = str(topic.sys_flag)
        if (group := self._groups.get(ext.get("consumerGroup", ""))) is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        message_id = text_field(ext, "msgId")
        try:
            _, offset = parse_offset_message_id(message_id)
            record = bytes(self._store.reader.read_raw(offset))
        except (ValueError, OffsetOutOfRange, CodecError) as error:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"no message {message_id[:60]!r}: {error}") from None
        require(command, topic_need(parse_record(record).topic, SUB))
        return await self._call(command, ext, record)

    @needs(on_group("group", GET), on_topic("topic", GET))
    async def consumer_status(self, connection: Connection, command: Command) -> bytes:
        """Answers with the offsets that each client of a group reports (GET_CONSUMER_STATUS_FROM_CLIENT)."""
        ext = command.ext
        group = self._group(text_field(ext, "group"))
        wanted = ext.get("clientAddr", "")
        table: dict[str, Any] = {}
        for one in list(group.members.values()):
            if wanted and one.client_id != wanted:
                continue
            request = Command(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": text_field(ext, "topic"), "group": group.name}
            )
            try:
                answer = await one.connection.invoke(request, CLIENT_TIMEOUT)
                if answer.code == ResponseCode.SUCCESS:
                    found = bodies.load_object(answer.body, "consumerStatus")
                    table[one.client_id] = found.get("messageQueueTable") or {}
            except (RemotingError, CodecError) as error:
                log.info("client %s did not tell its offsets: %s", one.client_id, error)
        return _json(command, {"consumerTable": table})

    async def _call(self, command: Command, ext: dict[str, str], body: bytes) -> bytes:
        group_name, client_id = text_field(ext, "consumerGroup"), text_field(ext, "clientId")
        group = self._members.consumer_group(group_name)
        member = group.find(client_id) if group is not None else None
        if member is None:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online")
        if member.version < RUNNING_INFO_SINCE:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please upgrade it to V3_1_8",
            )
        try:
            answer = await member.connection.invoke(Command(command.code, dict(ext), body), CLIENT_TIMEOUT)
        except RequestTimeout as error:
            raise ReplyError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group_name}> <{client_id}> Timeout: {error}"
            ) from None
        except RemotingError as error:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group_name}> <{client_id}> Exception: {error}"
            ) from None
        return encode_response(command.opaque, answer.code, answer.remark, answer.ext, answer.body)

    def _group(self, name: str) -> ConsumerGroup:
        group = self._members.consumer_group(name)
        if group is None or not group.members:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{name}]")
        return group


def _connections(members: Iterable[Member]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": one.connection.peer,
            "clientId": one.client_id,
            "language": one.language,
            "version": one.version,
        }
        for one in members
    ]


def _json(command: Command, body: dict[str, Any]) -> bytes:
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, fastjson.dumps_unquoted(body))
