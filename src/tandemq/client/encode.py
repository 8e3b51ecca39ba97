"""Turns a message into the fields and body of a send request. Pure.

What a broker would refuse is refused here first, by InvalidMessage that names the part, its value and the limit: types
and sizes of body, topic, keys and properties, characters that break the properties text, a delayed batch. What would be
stored as something else than was meant (a str for `keys`, None for a property) is refused as well.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tandemq.client.config import ClientConfig, Compression
from tandemq.errors import InvalidMessage
from tandemq.formats.batch import ELEMENT_FIXED, encode_batch
from tandemq.formats.compression import compress
from tandemq.formats.record import PROPERTIES_MAX
from tandemq.model import message as names
from tandemq.model.message import Message
from tandemq.model.topic import AUTO_CREATE_TOPIC, RETRY_PREFIX, topic_name_problem

_METHODS = {
    Compression.ZLIB: 0,  # without type bits, as 4.x writes it: every client in every language reads it
    Compression.LZ4: names.COMPRESSION_LZ4,
    Compression.ZSTD: names.COMPRESSION_ZSTD,
}


@dataclass(slots=True)
class Outgoing:
    """A message ready to be sent to any queue: what is the same in every attempt."""

    topic: str
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    unique_key: str
    batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


def outgoing(
    message: Message, unique_key: str, config: ClientConfig, *, extra: Iterable[tuple[str, str]] = ()
) -> Outgoing:
    """Returns a message that `check_message` accepts as a request: with RocketMQ's properties, large bodies compressed.

    `extra` properties take precedence over the user's.
    """
    body, bits = _compressed(_bytes_of(message.body), config)
    text = properties_text(message, unique_key, extra)
    return Outgoing(message.topic, body, text, bits, message.flag, unique_key)


_topic_problem = lru_cache(maxsize=4096)(topic_name_problem)


def check_message(message: Message, config: ClientConfig) -> None:
    """Raises InvalidMessage for a message that no broker would take, or that would not be stored as it was meant."""
    if not isinstance(message, Message):
        raise InvalidMessage(f"a Message is needed, not {_shown(message)}")
    topic, body = message.topic, message.body
    problem = _topic_problem(topic) if isinstance(topic, str) else f"topic={_shown(topic)}: a str is needed"
    if problem:
        raise InvalidMessage(problem)
    if type(body) is not bytes and not isinstance(body, (bytes, bytearray, memoryview)):
        hint = ": encode it, for example with .encode()" if isinstance(body, str) else ""
        raise InvalidMessage(f"body={_shown(body)}: bytes are needed{hint}")
    if not body:
        raise InvalidMessage(f"the body of a message to {topic!r} is empty: RocketMQ stores none without")
    if len(body) > config.message_size_max:
        raise InvalidMessage(
            f"the body has {len(body)} bytes, maxMessageSize is {config.message_size_max}: send less or raise "
            "the limit here and on the brokers"
        )
    if message.keys:
        _check_keys(message.keys)
    if message.properties:
        _check_properties(message.properties)
    if type(message.tags) is not str:
        raise InvalidMessage(f"tags={_shown(message.tags)}: a str is needed")
    if type(message.delay_level) is not int or message.delay_level < 0:
        raise InvalidMessage(f"delay_level={_shown(message.delay_level)}: a whole number of at least 0 is needed")
    if type(message.flag) is not int:
        raise InvalidMessage(f"flag={_shown(message.flag)}: a whole number is needed")


def _check_keys(keys: object) -> None:
    if not isinstance(keys, (tuple, list)):
        hint = f", such as ({keys!r},)" if isinstance(keys, str) and len(keys) < 80 else ""
        raise InvalidMessage(f"keys={_shown(keys)}: a tuple of str is needed{hint}")
    for key in keys:
        if not isinstance(key, str) or key.split() != [key]:
            raise InvalidMessage(
                f"keys has {_shown(key)}: each key is a str without blanks, which separate keys on the wire"
            )


def _check_properties(properties: object) -> None:
    if type(properties) is not dict and not isinstance(properties, Mapping):
        raise InvalidMessage(f"properties={_shown(properties)}: a mapping of str to str is needed")
    for name, value in properties.items():
        if not isinstance(name, str) or not name:
            raise InvalidMessage(f"properties has the name {_shown(name)}: a str that is not empty is needed")
        if not isinstance(value, str) or not value:
            raise InvalidMessage(f"properties[{name!r}]={_shown(value)}: a str that is not empty is needed")


def _shown(value: object) -> str:
    """Returns a value and its type for an error message, cut short."""
    text = repr(value)
    return f"{text[:60]}{'…' if len(text) > 60 else ''} ({type(value).__name__})"


def _bytes_of(body: bytes) -> bytes:
    """Returns the body itself, or a copy of one that its owner might still change."""
    return body if type(body) is bytes else bytes(body)


def properties_text(message: Message, unique_key: str, extra: Iterable[tuple[str, str]] = ()) -> str:
    """Returns the properties of a message as they are written on the wire."""
    found = dict(message.properties)
    if message.tags:
        found[names.TAGS] = message.tags
    if message.keys:
        found[names.KEYS] = " ".join(message.keys)
    if message.delay_level:
        found[names.DELAY] = str(message.delay_level)
    if names.WAIT not in found:
        found[names.WAIT] = "true"
    if unique_key and names.UNIQUE_KEY not in found:
        found[names.UNIQUE_KEY] = unique_key
    found.update(extra)
    text = "".join([f"{name}\x01{value}\x02" for name, value in found.items()])
    if text.count("\x01") != len(found) or text.count("\x02") != len(found):
        bad = next(name for name, value in found.items() if {"\x01", "\x02"} & {*name, *value})
        raise InvalidMessage(f"property {bad!r} has a character 1 or 2, which separate properties on the wire")
    size = len(text) if text.isascii() else len(text.encode())
    if size > PROPERTIES_MAX:
        raise InvalidMessage(f"the properties have {size} bytes, the limit is {PROPERTIES_MAX}")
    return text


def _compressed(body: bytes, config: ClientConfig) -> tuple[bytes, int]:
    if len(body) <= config.compress_over or config.compress_type is Compression.NONE:
        return body, 0
    smaller, bits = compress(body, _METHODS[config.compress_type], level=config.compress_level)
    return (smaller, bits) if len(smaller) < len(body) else (body, 0)


def send_fields(
    item: Outgoing, group: str, queue_id: int, broker_name: str, now_ms: int, queues: int
) -> dict[str, str]:
    """Returns the ext fields of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""
    fields = {
        "a": group,
        "b": item.topic,
        "c": AUTO_CREATE_TOPIC,
        "d": str(queues),
        "e": str(queue_id),
        "f": str(item.sys_flag),
        "g": str(now_ms),
        "h": str(item.flag),
        "i": item.properties,
        "j": str(item.reconsume_times),
        "k": "false",
        "m": "true" if item.batch else "false",
        "n": broker_name,
    }
    if item.max_reconsume_times is not None:
        fields["l"] = str(item.max_reconsume_times)
    return fields


def split_batch_list(
    messages: Sequence[Message], keys: Sequence[str], config: ClientConfig
) -> Iterator[tuple[list[Message], Outgoing]]:
    """Yields batches of at most batchSizeMax encoded bytes and batchCountMax messages, in order; each is one request.

    The count has a limit because the answer names every message in its header, whose size is limited: an answer that
    can't be read would be taken for a lost one, and the batch would be sent and stored again.
    """
    topic = messages[0].topic
    part: list[tuple[Message, str, bytes]] = []
    size = 0
    for message, key in zip(messages, keys, strict=True):
        properties = properties_text(message, key).encode()
        own = ELEMENT_FIXED + len(message.body) + len(properties)
        if part and (size + own > config.batch_size_max or len(part) >= config.batch_count_max):
            yield _batch(topic, part)
            part, size = [], 0
        part.append((message, key, properties))
        size += own
    if part:
        yield _batch(topic, part)


def _batch(topic: str, part: list[tuple[Message, str, bytes]]) -> tuple[list[Message], Outgoing]:
    body = encode_batch((message.flag, _bytes_of(message.body), properties) for message, _, properties in part)
    waiting = f"{names.WAIT}\x01true\x02"
    copies = part[0][0].properties.get(names.ACK_COPIES)
    if copies:
        waiting += f"{names.ACK_COPIES}\x01{copies}\x02"
    joined = ",".join(key for _, key, _ in part)
    return [message for message, _, _ in part], Outgoing(topic, body, waiting, 0, 0, joined, batch=True)


def check_batch(messages: Sequence[Message], config: ClientConfig) -> None:
    """Raises InvalidMessage for messages that can't be sent together."""
    if isinstance(messages, Message) or not isinstance(messages, Sequence):
        raise InvalidMessage(f"messages={_shown(messages)}: a sequence of Message is needed")
    if not messages:
        raise InvalidMessage("a batch needs at least one message")
    for message in messages:
        check_message(message, config)
    topic, copies = messages[0].topic, messages[0].properties.get(names.ACK_COPIES)
    for message in messages:
        if message.topic != topic:
            raise InvalidMessage(f"a batch has one topic, this one has {topic!r} and {message.topic!r}")
        if message.delay_level:
            raise InvalidMessage("messages of a batch can't be delayed: send them one by one")
        if message.properties.get(names.ACK_COPIES) != copies:
            raise InvalidMessage("messages of a batch are acknowledged together: give all the same copies")
    if topic.startswith(RETRY_PREFIX):
        raise InvalidMessage(f"retry topic {topic!r} takes no batches")
