"""REGISTER_BROKER's body in its three forms.

* RegisterBrokerBody JSON: `{"topicConfigSerializeWrapper":{...},"filterServerList":[]}`;
* peers before V3_0_11 send the topic table alone: `{"topicConfigTable":{},"dataVersion":{}}`;
* compressed: zlib of int32 size + DataVersion JSON; int32 topic count; per topic int32 size + text
  `name read write perm filterType [attributesJson]`; int32 size + filter server JSON; more after it is ignored.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tandemq.codec import fastjson
from tandemq.codec.bodies import (
    data_version_json,
    data_version_of,
    load_request,
    object_of,
    text_map_of,
    texts_of,
    topic_config_json,
    topic_table_json,
    topic_table_of,
)
from tandemq.errors import MalformedBody
from tandemq.formats.table_files import file_pieces
from tandemq.model.topic import DataVersion, TopicConfig

WRAPPED_SINCE = 37
"""V3_0_11: the first version whose body is a RegisterBrokerBody."""

INFLATED_SIZE_MAX = 16 * 1024 * 1024
"""About 125,000 topics; a stream that inflates beyond it is an attack."""

TOPICS_MAX = 131_072
ITEMS_MAX = 1_500_000
"""Objects, arrays and commas in a registration: a topic has about ten, and each may take a hundred bytes in memory."""
NAME_LENGTH_MAX = 255
"""Characters of a topic's name; brokers allow 127."""
ATTRIBUTES_SIZE_MAX = 16 * 1024
"""Bytes of one topic's attributes."""

_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The topics a broker offers, as of a version of its table."""

    topics: dict[str, TopicConfig]
    version: DataVersion


def body_crc(body: bytes | memoryview) -> int:
    """Returns what the header's bodyCrc32 holds."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_registration(topics: Iterable[TopicConfig], version: DataVersion) -> bytes:
    """Returns the JSON form, which every name server since 3.0.11 reads."""
    return fastjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": topic_table_json(topics, version)})


def registration_pieces(topics: Iterable[TopicConfig], version: DataVersion) -> Iterator[bytes]:
    """Yields the same form piece by piece, some tens of microseconds each."""
    yield b'{"filterServerList":[],"topicConfigSerializeWrapper":'
    entries = ((topic.name, topic_config_json(topic)) for topic in topics)
    yield from file_pieces({"dataVersion": data_version_json(version)}, [("topicConfigTable", entries)])
    yield b"}"


def decode_registration(body: bytes | memoryview, *, compressed: bool, peer_version: int) -> Registration:
    """Reads any of the forms; raises MalformedBody when it is none of them."""
    if compressed:
        return _decode_compressed(body)
    _check_items(bytes(body))
    found = load_request(body, "registerBrokerBody", INFLATED_SIZE_MAX)
    if peer_version < WRAPPED_SINCE:
        topics, version = topic_table_of(found)
        return _checked(topics, version)
    topics, version = topic_table_of(found.get("topicConfigSerializeWrapper"))
    texts_of(found.get("filterServerList"), "filterServerList")  # checked, and of no use: there are none since 4.0
    return _checked(topics, version)


def _check_items(data: bytes) -> None:
    """Raises MalformedBody for what would take much more memory read than written, before it is read."""
    items = data.count(b"{") + data.count(b"[") + data.count(b",")
    if items > ITEMS_MAX:
        raise MalformedBody(f"a registration of {items} items, the limit is {ITEMS_MAX}")


def _checked(topics: dict[str, TopicConfig], version: DataVersion) -> Registration:
    if len(topics) > TOPICS_MAX:
        raise MalformedBody(f"a registration of {len(topics)} topics, the limit is {TOPICS_MAX}")
    longest = max(map(len, topics), default=0)
    if longest > NAME_LENGTH_MAX:
        raise MalformedBody(f"a topic's name has {longest} characters, the limit is {NAME_LENGTH_MAX}")
    return Registration(topics=topics, version=version)


def _decode_compressed(body: bytes | memoryview) -> Registration:
    data = _inflate(body)
    _check_items(data)
    reader = _Reader(data)
    version = data_version_of(_small_json(reader.block("dataVersion")))
    topics = {}
    count = reader.count("topic count")
    if count > TOPICS_MAX:
        raise MalformedBody(f"a registration of {count} topics, the limit is {TOPICS_MAX}")
    for _ in range(count):
        topic = _topic_of(reader.block("topic").decode("utf-8", "replace"))
        topics[topic.name] = topic
    texts_of(_small_json(reader.block("filterServerList")), "filterServerList")
    return _checked(topics, version)


def _small_json(data: bytes | str) -> Any:
    """Returns what a short text says; fastjson's dialect is read character by character, so it must be short."""
    if len(data) > ATTRIBUTES_SIZE_MAX:
        raise MalformedBody(f"compressed registration: JSON of {len(data)}, the limit is {ATTRIBUTES_SIZE_MAX}")
    return fastjson.loads(data)


def _inflate(body: bytes | memoryview) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, INFLATED_SIZE_MAX)
    except zlib.error as error:
        raise MalformedBody(f"compressed registration: {error}") from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise MalformedBody(f"compressed registration is cut or inflates beyond {INFLATED_SIZE_MAX} bytes")
    return data


class _Reader:
    """Length-prefixed blocks, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self, what: str) -> int:
        if self._position + 4 > len(self._data):
            raise MalformedBody(f"compressed registration ends before {what}")
        (value,) = _INT32.unpack_from(self._data, self._position)
        self._position += 4
        if not 0 <= value <= len(self._data) - self._position:
            raise MalformedBody(f"compressed registration: {what}={value} in the {len(self._data)} bytes there are")
        return int(value)

    def block(self, what: str) -> bytes:
        size = self.count(what)
        self._position += size
        return self._data[self._position - size : self._position]


def _topic_of(text: str) -> TopicConfig:
    name, *rest = text.split(" ", 5)
    try:
        read, write, perm = (int(number) for number in rest[:3])
    except ValueError:
        raise MalformedBody(f"compressed registration: topic {text[:80]!r}: name read write perm expected") from None
    attributes = text_map_of(object_of(_small_json(rest[4]), "attributes"), "attributes") if len(rest) > 4 else {}
    filter_type = rest[3] if len(rest) > 3 else "SINGLE_TAG"
    return TopicConfig(
        name=name, read_queues=read, write_queues=write, perm=perm, filter_type=filter_type, attributes=attributes
    )
