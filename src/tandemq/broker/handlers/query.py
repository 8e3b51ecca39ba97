"""QUERY_MESSAGE and VIEW_MESSAGE_BY_ID: messages by key, by unique id and by offset."""

from tandemq.broker.replies import bool_field, int_field, text_field
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import CodecError, OffsetOutOfRange, ReplyError
from tandemq.formats.record import parse_record
from tandemq.remoting.access.needs import GET, SUB, needs, on_topic, require, topic_need
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.store.message_store import MessageStore

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
DEFAULT_QUERY_MAX = 32
"""defaultQueryMaxNum: what a query by unique id may return, whatever it asks for."""
QUERY_MAX = 64
"""maxMsgsNumBatch: messages of one answer."""


class QueryHandlers:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.QUERY_MESSAGE: self.query, RequestCode.VIEW_MESSAGE_BY_ID: self.view}

    @needs(on_topic("topic", SUB | GET))
    def query(self, connection: Connection, command: Command) -> bytes:
        ext = command.ext
        unique = bool_field(ext, UNIQUE_KEY_QUERY)
        count = DEFAULT_QUERY_MAX if unique else min(max(int_field(ext, "maxNum"), 0), QUERY_MAX)
        found = self._store.reader.query(
            text_field(ext, "topic"),
            text_field(ext, "key"),
            count,
            int_field(ext, "beginTimestamp"),
            int_field(ext, "endTimestamp"),
        )
        if not found:
            raise ReplyError(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
        answer = {
            "indexLastUpdateTimestamp": str(max(message.store_timestamp for message in found)),
            "indexLastUpdatePhyoffset": str(self._store.dispatched),
        }
        body = b"".join(self._store.reader.read_raw(message.physical_offset) for message in found)
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, answer, body)

    @needs()
    def view(self, connection: Connection, command: Command) -> bytes:
        offset = int_field(command.ext, "offset")
        try:
            record = bytes(self._store.reader.read_raw(offset))
        except (OffsetOutOfRange, CodecError):
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}") from None
        require(command, topic_need(parse_record(record).topic, SUB | GET))
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, record)
