"""Messages that a listener could not handle go back to a broker."""

from typing import Any

from tests.unit.client.fake_cluster import FakeCluster, on_loop, record

from tandemq.client.message import ReceivedMessage, decode_messages
from tandemq.client.send_back import SendBack
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.model.message import decode_properties


def message() -> ReceivedMessage:
    (found,) = decode_messages(record(b"bad", 3, UNIQ_KEY="ID", TAGS="A", TRAN_MSG="true"), "a")
    return found


async def made(cluster: FakeCluster, **options: Any) -> SendBack:
    session = cluster.session(**options)
    await session.route("T")
    return SendBack(session, "g", 16)


def refuse(cluster: FakeCluster) -> None:
    cluster.on[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda *_: Command(1, remark="no")


@on_loop
async def test_the_broker_takes_it_back_and_chooses_the_delay() -> None:
    cluster = FakeCluster()
    assert await (await made(cluster)).later(message())
    assert cluster.sent_back == [(3000, 0)]
    command = next(c for c in cluster.commands if c.code == RequestCode.CONSUMER_SEND_MSG_BACK)
    assert (command.ext["group"], command.ext["originMsgId"], command.ext["originTopic"]) == ("g", "ID", "T")


@on_loop
async def test_the_dead_letters_are_level_minus_one() -> None:
    cluster = FakeCluster()
    assert await (await made(cluster)).give_up(message())
    assert cluster.sent_back == [(3000, -1)]


@on_loop
async def test_a_refused_message_is_sent_anew_to_the_retry_topic() -> None:
    cluster = FakeCluster()
    refuse(cluster)
    assert await (await made(cluster)).later(message())
    assert cluster.sent == [("a:1", "%RETRY%g", b"bad")]
    command = next(c for c in cluster.commands if c.code == RequestCode.SEND_MESSAGE_V2)
    properties = decode_properties(command.ext["i"].encode())
    assert properties["RETRY_TOPIC"] == "T"
    assert (properties["RECONSUME_TIME"], properties["DELAY"], properties["ORIGIN_MESSAGE_ID"]) == ("1", "3", "ID")
    assert "TRAN_MSG" not in properties
    assert (command.ext["a"], command.ext["j"], command.ext["l"]) == ("CLIENT_INNER_PRODUCER", "1", "16")


@on_loop
async def test_nobody_takes_it() -> None:
    cluster = FakeCluster()
    refuse(cluster)
    cluster.on[RequestCode.SEND_MESSAGE_V2] = lambda *_: Command(1, remark="no")
    back = await made(cluster)
    assert not await back.later(message())
    assert not await back.give_up(message())


@on_loop
async def test_a_master_that_moved_is_found() -> None:
    cluster = FakeCluster(brokers={"a": {0: "old:1"}})
    back = await made(cluster)
    cluster.brokers["a"] = {0: "new:1"}
    cluster.dead.add("old:1")
    assert await back.later(message())
    assert cluster.sent_back == [(3000, 0)]
