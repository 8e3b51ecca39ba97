"""What users hold in their hands: send results and received messages."""

import pytest
from tests.unit.client.fake_cluster import HOST, record

from tandemq.client.message import ReceivedMessage, SendResult, SendStatus, decode_messages
from tandemq.errors import BodyTooLarge, CorruptRecord
from tandemq.formats.compression import compress
from tandemq.formats.record import encode_record
from tandemq.model.message import COMPRESSION_ZSTD
from tandemq.model.topic import QueueRef


def packed(body: bytes, size_max: int = 1 << 20) -> ReceivedMessage:
    smaller, flags = compress(body, COMPRESSION_ZSTD)
    data = encode_record(
        topic="T",
        queue_id=1,
        queue_offset=5,
        physical_offset=7,
        born_timestamp=1,
        born_host=HOST,
        store_timestamp=2,
        store_host=HOST,
        body=smaller,
        properties=b"",
        sys_flag=flags,
    )
    (message,) = decode_messages(data, "a", body_size_max=size_max)
    return message


def test_a_reply_is_cut_into_messages() -> None:
    data = record(b"one", 0, TAGS="A", KEYS="k1 k2", UNIQ_KEY="ID") + record(b"two", 1)
    first, second = decode_messages(memoryview(data), "a")
    assert (first.body, first.tags, first.keys, first.message_id) == (b"one", "A", ("k1", "k2"), "ID")
    assert (second.body, second.tags, second.keys) == (b"two", "", ())
    assert second.message_id == second.offset_message_id
    assert second.queue == QueueRef("T", "a", 0)
    assert (second.queue_id, second.queue_offset, second.born_timestamp, second.store_timestamp) == (0, 1, 1, 2)


def test_bytes_that_end_inside_a_record_are_refused() -> None:
    data = record(b"one", 0) + record(b"two", 1)[:-3]
    with pytest.raises(CorruptRecord, match="after the last whole record"):
        list(decode_messages(data, "a"))


def test_a_retried_message_shows_the_topic_it_came_from() -> None:
    retry = QueueRef("%RETRY%g", "a", 0)
    (message,) = decode_messages(record(b"x", 0, retry, RETRY_TOPIC="orders"), "a")
    assert (message.topic, message.queue) == ("orders", retry)


def test_a_body_is_decompressed_when_it_is_read() -> None:
    message = packed(b"x" * 10_000)
    assert message._body is None
    assert message.body == b"x" * 10_000
    assert message.body is message.body


def test_a_body_beyond_the_limit_is_refused_when_it_is_read() -> None:
    message = packed(bytes(10_000), size_max=5000)
    assert "T/a/1@5" in repr(message)
    with pytest.raises(BodyTooLarge, match="limit of 5000"):
        message.body  # noqa: B018
    assert len(message.stored.body) < 100


def test_only_a_result_without_a_missing_promise_is_ok() -> None:
    result = SendResult(SendStatus.SEND_OK, "ID", "", QueueRef("T", "a", 0), 5)
    assert result.ok
    assert not any(result._replace(status=s).ok for s in SendStatus if s is not SendStatus.SEND_OK)
