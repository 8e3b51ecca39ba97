"""Admin: single messages, found by id, key or place."""

import pytest
from tests.unit.client.fake_admin import made
from tests.unit.client.fake_cluster import HOST, on_loop, pull_answer, record

from tandemq.client.admin_messages import _address_text
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError
from tandemq.model.message import offset_message_id
from tandemq.model.topic import QueueRef

QUEUE = QueueRef("T", "a", 0)


@on_loop
async def test_a_message_is_found_by_the_place_in_its_id() -> None:
    admin, cluster = made(
        {RequestCode.VIEW_MESSAGE_BY_ID: lambda *_: Command(0, None, record(b"x", 3))},
        brokers={"a": {0: "127.0.0.1:1"}},
    )
    found = await admin.message_by_id(offset_message_id(HOST, 3000))
    assert (found.body, found.broker_name) == (b"x", "a")
    cluster.on[RequestCode.VIEW_MESSAGE_BY_ID] = lambda *_: Command(1, remark="nothing there")
    with pytest.raises(ClientError, match=r"no message 7F000001.*nothing there"):
        await admin.message_by_id(offset_message_id(HOST, 3000))
    with pytest.raises(ClientError, match="hexadecimal digits expected"):
        await admin.message_by_id("AB")


@on_loop
async def test_keys_are_compared_again_because_the_index_finds_by_hash() -> None:
    records = record(b"right", 0, KEYS="k other", UNIQ_KEY="ID") + record(b"same hash", 1, KEYS="else")
    admin, cluster = made({RequestCode.QUERY_MESSAGE: lambda *_: Command(0, None, records)})
    assert [m.body for m in await admin.messages_by_key("T", "k")] == [b"right"]
    assert (await admin.message_by_id("ID", "T")).body == b"right"
    cluster.on[RequestCode.QUERY_MESSAGE] = lambda *_: Command(ResponseCode.QUERY_NOT_FOUND)
    assert await admin.messages_by_key("T", "k") == []


@on_loop
async def test_a_place_without_a_message_says_what_the_queue_has() -> None:
    admin, cluster = made()
    cluster.store(b"0", b"1")
    assert (await admin.message_at(QUEUE, 1)).body == b"1"
    cluster.on[RequestCode.PULL_MESSAGE] = lambda *_: pull_answer(ResponseCode.PULL_NOT_FOUND, 2)
    with pytest.raises(ClientError, match="9 is none of them"):
        await admin.message_at(QUEUE, 9)


def test_addresses_of_both_families_are_written_out() -> None:
    assert _address_text(bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")) == "10.0.0.1:10911"
    assert _address_text(bytes(15) + b"\x01" + (10911).to_bytes(4, "big")) == "[::1]:10911"
