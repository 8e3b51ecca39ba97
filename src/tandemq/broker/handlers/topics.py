"""Topic administration: create, update, delete, list (17, 18, 215, 21, 351).

A change is answered when it is on disk; the name servers are told in the same turn.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tandemq.broker.handlers.table_answers import table_for_slave
from tandemq.broker.long_answers import LongAnswer, quoted_member
from tandemq.broker.replies import bool_field, int_field, text_field
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.table_file import TableFile
from tandemq.broker.tables.topics import TopicTable, TopicTableFull
from tandemq.broker.writer import TOPIC_COPIES, MessageWriter
from tandemq.clock import Clock
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import ConfigError, ReplyError
from tandemq.formats.log_mark import TopicDeleted
from tandemq.model.ack_level import parse_level
from tandemq.model.topic import DataVersion, TopicConfig, is_internal_topic, topic_name_problem
from tandemq.remoting.access.needs import CREATE, DELETE, GET, UPDATE, needs, on_cluster, on_topic, require, topic_need
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.replication.metadata import SINCE
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

SPLIT_SIZE_MAX = 2000
"""Entries of one page of 21 and 201 (splitMetadataSize)."""
ATTRIBUTES_LENGTH_MAX = 4096
LIST_COUNT_MAX = 2000
"""Topics or groups that one request changes; `mqadmin` sends what its file lists."""


class TopicHandlers:
    """What administrators and slaves ask about topics."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        store: MessageStore,
        writer: MessageWriter,
        file: TableFile,
        clock: Clock,
        *,
        on_delete: Callable[[str], None] = lambda topic: None,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._writer = writer
        self._file = file
        self._clock = clock
        self._on_delete = on_delete

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all,
            RequestCode.GET_TOPIC_CONFIG: self.one,
        }

    @needs(on_topic("topic", CREATE | UPDATE))
    async def update(self, connection: Connection, command: Command) -> bytes:
        ext = command.ext
        name = text_field(ext, "topic")
        old = self._topics.get(name)
        config = TopicConfig(
            name=name,
            read_queues=int_field(ext, "readQueueNums"),
            write_queues=int_field(ext, "writeQueueNums"),
            perm=int_field(ext, "perm"),
            filter_type="MULTI_TAG" if ext.get("topicFilterType") == "MULTI_TAG" else "SINGLE_TAG",
            sys_flag=int_field(ext, "topicSysFlag", 0),
            order=bool_field(ext, "order"),
            attributes=changed_attributes(old.attributes if old else {}, ext.get("attributes", "")),
        )
        log.info("topic %s updated by %s", name[:130], connection.peer)
        return await self._put(command, [config])

    @needs(audited=True, shows_body=True)
    async def update_list(self, connection: Connection, command: Command) -> bytes:
        told = bodies.load_request(command.body, "topics").get("topicConfigList")
        told = bodies.list_of(told, "topicConfigList", LIST_COUNT_MAX)
        if not told:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, "topicConfigList is empty")
        return await self._put(command, [self._merged(bodies.topic_config_of(item)) for item in told])

    def _merged(self, told: TopicConfig) -> TopicConfig:
        """Attributes in a list come as +k -> v and -k -> anything, as in the text form."""
        old = self._topics.get(told.name)
        marked = ",".join(f"{key}={value}" if key.startswith("+") else key for key, value in told.attributes.items())
        plain = {key: value for key, value in told.attributes.items() if key[:1] not in "+-"}
        kept = plain or changed_attributes(old.attributes if old else {}, marked)
        return dataclasses.replace(told, attributes=kept)

    async def _put(self, command: Command, configs: list[TopicConfig]) -> bytes:
        require(command, *(topic_need(config.name, CREATE | UPDATE) for config in configs))
        for config in configs:
            if (problem := topic_name_problem(config.name)) is not None:
                raise ReplyError(ResponseCode.INVALID_PARAMETER, problem)
            if self._is_own(config.name):
                raise ReplyError(
                    ResponseCode.INVALID_PARAMETER, f"The topic[{config.name}] is conflict with system topic."
                )
            if TOPIC_COPIES in config.attributes:
                try:
                    parse_level(config.attributes[TOPIC_COPIES])
                except ConfigError as error:
                    raise ReplyError(ResponseCode.INVALID_PARAMETER, f"{TOPIC_COPIES}: {error}") from None
        try:
            self._topics.put_all(configs)
        except (ValueError, TopicTableFull) as error:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        await self._file.saved()
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    @needs(on_topic("topic", DELETE))
    async def delete(self, connection: Connection, command: Command) -> bytes:
        name = text_field(command.ext, "topic")
        if (problem := topic_name_problem(name)) is not None:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, problem)
        if self._is_own(name):
            raise ReplyError(ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")
        if name in self._topics or any(topic == name for topic, _ in self._store.reader.queues()):
            # The log says it first: whoever follows it drops the queues at the same position.
            put = self._writer.put_mark(TopicDeleted(name))
            log.info("topic %s deleted by %s", name, connection.peer)
            self._topics.delete(name)
            self._offsets.remove_topic(name)
            self._on_delete(name)
            await put
            await self._file.saved()
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    def _is_own(self, name: str) -> bool:
        return self._topics.is_system(name) or is_internal_topic(name, "")

    @needs(on_cluster(GET))
    async def all(self, connection: Connection, command: Command) -> bytes:
        """Answers slaves with the topics.

        They get everything, one page (5.x), or what changed since the mark that one of ours names.
        """
        if SINCE in command.ext:
            return await table_for_slave(self._topics, command, clock=self._clock)
        table, answer = dict(self._topics.all()), LongAnswer(self._clock)
        version = bodies.data_version_json(self._topics.version)
        names = page_of(sorted(table), command.ext, "topicSeq", "maxTopicNum", self._topics.version)
        topics = await answer.joined(quoted_member(name, bodies.topic_config_json(table[name])) for name in names)
        rest = {
            "mappingDataVersion": bodies.data_version_json(DataVersion()),
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
        parts = (fastjson.dumps(version), topics, fastjson.dumps(rest)[1:])
        body = b'{"dataVersion":%b,"topicConfigTable":{%b},%b' % parts
        return answer.encoded(command, body, {"totalTopicNum": str(len(table))})

    @needs(on_topic("topic", GET))
    def one(self, connection: Connection, command: Command) -> bytes:
        name = text_field(command.ext, "topic")
        config = self._topics.get(name)
        if config is None:
            raise ReplyError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name[:130]}")
        body = fastjson.dumps(bodies.topic_config_json(config))
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)


def changed_attributes(old: Mapping[str, str], text: str) -> dict[str, str]:
    """Applies `+key=value,-other` to what a topic had; raises ReplyError for text that is neither."""
    if len(text) > ATTRIBUTES_LENGTH_MAX:
        raise ReplyError(
            ResponseCode.INVALID_PARAMETER, f"attributes have {len(text)} characters, at most {ATTRIBUTES_LENGTH_MAX}"
        )
    found = dict(old)
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = item[1:].partition("=")
        if item[0] not in "+-" or not key.strip():
            raise ReplyError(ResponseCode.INVALID_PARAMETER, f"attribute {item[:80]!r}: +key=value or -key expected")
        if item[0] == "+":
            found[key.strip()] = value.strip()
        else:
            found.pop(key.strip(), None)
    return found


def page_of(
    names: list[str], ext: Mapping[str, str], sequence_key: str, count_key: str, version: DataVersion
) -> Iterable[str]:
    """Returns the page that a slave asks for, or everything to one that knows no pages; another version starts at 0."""
    if sequence_key not in ext and "dataVersion" not in ext:
        return names
    start = int_field(ext, sequence_key, 0)
    told: Any = ext.get("dataVersion")
    if told and bodies.data_version_of(bodies.load_request(told.encode(), "dataVersion")) != version:
        start = 0
    count = min(SPLIT_SIZE_MAX, max(0, int_field(ext, count_key, SPLIT_SIZE_MAX)) or SPLIT_SIZE_MAX)
    return names[max(0, start) : max(0, start) + count]
