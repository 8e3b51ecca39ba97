"""From a message to a send request."""

from typing import Any

import pytest

from tandemq.client.config import ClientConfig, Compression
from tandemq.client.encode import (
    Outgoing,
    check_batch,
    check_message,
    outgoing,
    properties_text,
    send_fields,
    split_batch_list,
)
from tandemq.client.ids import UniqueKeys
from tandemq.errors import InvalidMessage
from tandemq.formats.batch import split_batch
from tandemq.formats.compression import decompress
from tandemq.model.message import ACK_COPIES, COMPRESSED, Message, decode_properties

CONFIG = ClientConfig()


def test_properties_carry_what_brokers_and_consumers_look_for() -> None:
    message = Message(topic="T", body=b"x", tags="A", keys=("k1", "k2"), properties={"a": "b"}, delay_level=3)
    assert decode_properties(properties_text(message, "ID").encode()) == {
        "a": "b",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "WAIT": "true",
        "UNIQ_KEY": "ID",
    }


def test_a_unique_key_of_the_user_stays() -> None:
    message = Message(topic="T", body=b"x", properties={"UNIQ_KEY": "mine"})
    assert decode_properties(properties_text(message, "ID").encode())["UNIQ_KEY"] == "mine"


@pytest.mark.parametrize("method", [Compression.ZLIB, Compression.LZ4, Compression.ZSTD])
def test_large_bodies_are_compressed(method: Compression) -> None:
    body = b"abc" * 5000
    item = outgoing(Message(topic="T", body=body), "ID", ClientConfig(compress_type=method))
    assert item.sys_flag & COMPRESSED
    assert len(item.body) < 1000
    assert decompress(item.body, item.sys_flag) == body


def test_small_and_incompressible_bodies_stay() -> None:
    import random

    noise = random.Random(1).randbytes(8000)
    for body in (b"x" * 4096, noise):
        item = outgoing(Message(topic="T", body=body), "ID", CONFIG)
        assert (item.body, item.sys_flag) == (body, 0)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message(topic="T", body=b""), "empty"),
        (Message(topic="T", body=bytes(4 * 1024 * 1024 + 1)), "4194305 bytes"),
        (Message(topic="../x", body=b"x"), "characters"),
        (Message(topic="T", body=b"x", properties={"k\x02": "v"}), "separate"),
        (Message(topic="T", body=b"x", properties={"k": "v" * 33000}), "32767"),
    ],
)
def test_what_no_broker_takes_is_refused_with_the_numbers(message: Message, words: str) -> None:
    with pytest.raises(InvalidMessage, match=words):
        checked(message)


def checked(message: Any) -> Outgoing:
    check_message(message, CONFIG)
    return outgoing(message, "ID", CONFIG)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"body": "text"}, r"body='text' \(str\): bytes.*encode"),
        ({"body": None}, r"body=None"),
        ({"topic": 5}, r"topic=5 \(int\)"),
        ({"keys": "order-1"}, r"keys='order-1' \(str\): a tuple.*\('order-1',\)"),
        ({"keys": ("a b",)}, r"'a b'.*blanks"),
        ({"keys": ("",)}, r"keys has ''"),
        ({"keys": (1,)}, r"keys has 1 \(int\)"),
        ({"properties": {"n": None}}, r"properties\['n'\]=None"),
        ({"properties": {"n": 5}}, r"properties\['n'\]=5 \(int\)"),
        ({"properties": {"n": ""}}, r"properties\['n'\]=''"),
        ({"properties": {1: "x"}}, r"name 1 \(int\)"),
        ({"properties": "n"}, r"properties='n'"),
        ({"tags": None}, r"tags=None"),
        ({"delay_level": "3"}, r"delay_level='3'"),
        ({"delay_level": -1}, r"delay_level=-1"),
        ({"delay_level": True}, r"delay_level=True"),
        ({"flag": None}, r"flag=None"),
    ],
    ids=repr,
)
def test_what_would_be_stored_as_something_else_is_refused(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidMessage, match=words):
        checked(Message(**{"topic": "T", "body": b"x", **parts}))


def test_what_is_no_message_is_named() -> None:
    with pytest.raises(InvalidMessage, match=r"a Message is needed, not b'x' \(bytes\)"):
        checked(b"x")


@pytest.mark.parametrize("body", [bytearray(b"abc"), memoryview(b"abc")])
def test_a_body_that_its_owner_may_change_is_copied(body: Any) -> None:
    assert checked(Message(topic="T", body=body)).body == b"abc"
    assert type(checked(Message(topic="T", body=body)).body) is bytes


def test_a_list_is_split_by_count() -> None:
    messages = [Message(topic="T", body=b"x")] * 8000
    parts = [part for part, _ in split_batch_list(messages, ["K"] * 8000, CONFIG)]
    assert [len(part) for part in parts] == [1024] * 7 + [832]


def test_the_fields_of_a_send_have_short_names() -> None:
    item = outgoing(Message(topic="T", body=b"x", flag=7), "ID", CONFIG)
    fields = send_fields(item, "G", 3, "broker-a", 1234, 4)
    assert fields["a"] == "G"
    assert (fields["b"], fields["e"], fields["g"], fields["h"]) == ("T", "3", "1234", "7")
    assert (fields["m"], "l" in fields) == ("false", False)


def test_a_list_is_split_by_encoded_size() -> None:
    messages = [Message(topic="T", body=bytes(400)) for _ in range(10)]
    keys = [f"K{i}" for i in range(10)]
    parts = list(split_batch_list(messages, keys, ClientConfig(batch_size_max=1024)))
    assert [len(part) for part, _ in parts] == [2, 2, 2, 2, 2]
    assert all(len(item.body) <= 1024 and item.batch for _, item in parts)
    assert ",".join(item.unique_key for _, item in parts) == ",".join(keys)
    elements = split_batch(parts[4][1].body)
    assert [decode_properties(bytes(properties))["UNIQ_KEY"] for _, _, properties in elements] == ["K8", "K9"]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one"),
        ([Message(topic="A", body=b"x"), Message(topic="B", body=b"x")], "one topic"),
        ([Message(topic="A", body=b"x", delay_level=1)], "delayed"),
        ([Message(topic="%RETRY%g", body=b"x")], "retry"),
        ([Message(topic="A", body=b"x"), Message(topic="A", body=b"x", properties={ACK_COPIES: "2"})], "same copies"),
    ],
)
def test_lists_that_are_no_batch(messages: list[Message], words: str) -> None:
    with pytest.raises(InvalidMessage, match=words):
        check_batch(messages, CONFIG)


def test_unique_keys_have_upstreams_layout_and_differ() -> None:
    keys = UniqueKeys("10.1.2.3", pid=258)
    now_ms = 1_767_225_600_000 + 5_000  # five seconds into 2026
    made = {keys.next(now_ms) for _ in range(1000)}
    assert len(made) == 1000
    one = min(made)
    assert len(one) == 32
    assert one.startswith("0A010203" + "0102")
    assert int(one[20:28], 16) == 5_000
