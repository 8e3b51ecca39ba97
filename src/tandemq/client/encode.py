"""From a message to the fields and body of a send request. Pure.

Everything a broker would refuse is refused here first, with the numbers: the sizes of body, topic and properties, names
that break the properties text, combinations that can't be (a delayed batch, an empty body).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tandemq.client.config import ClientConfig, Compression
from tandemq.codec.batch import ELEMENT_FIXED, encode_batch
from tandemq.codec.compression import compress
from tandemq.codec.record import PROPERTIES_MAX
from tandemq.errors import InvalidMessage
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
    """Checks, adds the properties RocketMQ wants, compresses what is large. `extra` properties win over the user's."""
    check_message(message, config)
    body, bits = _compressed(message.body, config)
    text = properties_text(message, unique_key, extra)
    return Outgoing(message.topic, body, text, bits, message.flag, unique_key)


_topic_problem = lru_cache(maxsize=4096)(topic_name_problem)


def check_message(message: Message, config: ClientConfig) -> None:
    problem = _topic_problem(message.topic)
    if problem:
        raise InvalidMessage(problem)
    if not message.body:
        raise InvalidMessage(f"the body of a message to {message.topic!r} is empty: RocketMQ stores none without")
    if len(message.body) > config.message_size_max:
        raise InvalidMessage(
            f"the body has {len(message.body)} bytes, maxMessageSize is {config.message_size_max}: send less or raise "
            "the limit here and on the brokers"
        )


def properties_text(message: Message, unique_key: str, extra: Iterable[tuple[str, str]] = ()) -> str:
    """The properties of a message as the wire has them."""
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
    """The ext fields of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""
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
    """Batches of at most batchSizeMax encoded bytes, in order, each one request."""
    topic = _check_batch(messages, config)
    part: list[tuple[Message, str, bytes]] = []
    size = 0
    for message, key in zip(messages, keys, strict=True):
        properties = properties_text(message, key).encode()
        own = ELEMENT_FIXED + len(message.body) + len(properties)
        if part and size + own > config.batch_size_max:
            yield _batch(topic, part)
            part, size = [], 0
        part.append((message, key, properties))
        size += own
    if part:
        yield _batch(topic, part)


def _batch(topic: str, part: list[tuple[Message, str, bytes]]) -> tuple[list[Message], Outgoing]:
    body = encode_batch((message.flag, message.body, properties) for message, _, properties in part)
    waiting = f"{names.WAIT}\x01true\x02"
    copies = part[0][0].properties.get(names.ACK_COPIES)
    if copies:
        waiting += f"{names.ACK_COPIES}\x01{copies}\x02"
    joined = ",".join(key for _, key, _ in part)
    return [message for message, _, _ in part], Outgoing(topic, body, waiting, 0, 0, joined, batch=True)


def _check_batch(messages: Sequence[Message], config: ClientConfig) -> str:
    if not messages:
        raise InvalidMessage("a batch needs at least one message")
    topic = messages[0].topic
    copies = messages[0].properties.get(names.ACK_COPIES)
    for message in messages:
        check_message(message, config)
        if message.topic != topic:
            raise InvalidMessage(f"a batch has one topic, this one has {topic!r} and {message.topic!r}")
        if message.delay_level:
            raise InvalidMessage("messages of a batch can't be delayed: send them one by one")
        if message.properties.get(names.ACK_COPIES) != copies:
            raise InvalidMessage("messages of a batch are acknowledged together: give all the same copies")
    if topic.startswith(RETRY_PREFIX):
        raise InvalidMessage(f"retry topic {topic!r} takes no batches")
    return topic
