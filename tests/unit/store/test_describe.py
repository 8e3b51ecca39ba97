"""A stored message under the names of Java's MessageExt."""

import hashlib

import pytest
from tests.unit.store.stores import HOST, opened, put

from tandemq.formats.compression import compress
from tandemq.model.message import COMPRESSED, StoredMessage
from tandemq.store.describe import describe, host_text


def stored(**changes: object) -> StoredMessage:
    fields = {
        "topic": "t", "queue_id": 1, "queue_offset": 2, "physical_offset": 300, "size": 120, "flag": 4, "sys_flag": 0,
        "born_timestamp": 5, "born_host": HOST, "store_timestamp": 6, "store_host": HOST, "body_crc": 7,
        "reconsume_times": 8, "prepared_transaction_offset": 9, "body": b"text", "properties": {"b": "1", "a": "2"},
    } | changes  # fmt: skip
    return StoredMessage(**fields)  # type: ignore[arg-type]


def test_every_field_has_its_java_name() -> None:
    found = describe(stored())
    assert (found["topic"], found["queueId"], found["queueOffset"]) == ("t", 1, 2)
    assert (found["physicalOffset"], found["storeSize"], found["flag"]) == (300, 120, 4)
    assert (found["bornTimestamp"], found["storeTimestamp"], found["bodyCRC"]) == (5, 6, 7)
    assert (found["reconsumeTimes"], found["preparedTransactionOffset"]) == (8, 9)
    assert (found["bornHost"], found["storeHost"]) == ("/10.0.0.1:1", "/10.0.0.1:1")
    assert list(found["properties"]) == ["a", "b"]
    assert "bodyProblem" not in found


def test_the_id_is_the_producers_where_there_is_one() -> None:
    assert describe(stored())["msgId"] == stored().message_id
    assert describe(stored(properties={"UNIQ_KEY": "0A"}))["msgId"] == "0A"


def test_length_and_sum_are_those_of_the_body_before_compression() -> None:
    body = b"text" * 1000
    packed, sys_flag = compress(body)
    found = describe(stored(body=packed, sys_flag=sys_flag))
    assert (found["bodyLength"], found["bodySha256"]) == (4000, hashlib.sha256(body).hexdigest())


def test_a_body_that_cannot_be_unpacked_says_so_and_is_shown_as_it_is() -> None:
    found = describe(stored(body=b"not packed", sys_flag=COMPRESSED))
    assert found["bodyLength"] == 10
    assert found["bodyProblem"]


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (bytes((192, 168, 0, 7)) + (10911).to_bytes(4, "big"), "/192.168.0.7:10911"),
        (bytes(15) + b"\x01" + (80).to_bytes(4, "big"), "/[0:0:0:0:0:0:0:1]:80"),
    ],
)
def test_hosts_are_printed_as_java_prints_them(host: bytes, text: str) -> None:
    assert host_text(host) == text


def test_a_message_of_a_store_is_described() -> None:
    store = opened()
    put(store, b"body", b"KEYS\x01k\x02")
    [message] = store.log.messages(0, store.appended)
    assert describe(message)["properties"] == {"KEYS": "k"}
    assert describe(message)["bodyLength"] == 4
