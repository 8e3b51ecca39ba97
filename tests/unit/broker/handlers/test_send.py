"""Sends: what is checked, what is added, what is answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.replication.waiters import TellingQueue

from tandemq.broker.handlers.send import SendHandlers
from tandemq.broker.tables.locks import QueueLocks
from tandemq.codec.command import ONEWAY_FLAG, Command
from tandemq.codec.send_header import SendHeader
from tandemq.errors import ConfigError, ReplyError
from tandemq.formats.batch import encode_batch
from tandemq.formats.compression import compress
from tandemq.model.ack_level import AckLevel
from tandemq.model.message import COMPRESSED, StoredMessage, decode_properties
from tandemq.model.topic import QueueRef, TopicConfig
from tandemq.testing.broker_parts import HOST, BrokerParts, FakeConnection, decoded

KEY = "7F000001ABCD00000000000000000001"


class Story:
    def __init__(self, **options: Any) -> None:
        self.parts = BrokerParts(**options)
        self.locks = QueueLocks(60.0)
        self.connection = FakeConnection()
        self.handlers = SendHandlers(
            self.parts.topics, self.parts.groups, self.parts.members, self.parts.writer, self.locks, self.parts.live,
            self.parts.clock, HOST, self.parts.stats,
        )  # fmt: skip
        self.parts.topics.on_change = lambda names: self.handlers.forget_targets(names)

    def send(self, body: bytes = b"hello", *, oneway: bool = False, **fields: Any) -> Command | None:
        """The reply, whether it came at once or through the connection."""
        header = SendHeader(
            **{
                "producerGroup": "pg", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
                "sysFlag": 0, "bornTimestamp": 1, "flag": 7, "properties": f"UNIQ_KEY\x01{KEY}\x02", "version": 407,
                **fields,
            }
        )  # fmt: skip
        flag = ONEWAY_FLAG if oneway else 0
        before = len(self.connection.sent)
        reply = self.handlers.send(self.connection, 5, flag, header, memoryview(body))  # type: ignore[arg-type]
        if reply is not None:
            return decoded(reply)[0]
        return self.connection.sent[-1] if len(self.connection.sent) > before else None

    async def stored(self, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
        await self.parts.settle()
        return self.parts.read(topic, queue_id)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_a_send_is_stored_and_answered_with_its_ids() -> None:
    """The template's bytes are what the general encoder would write."""

    async def story() -> None:
        s = Story()
        reply = s.send()
        assert reply is not None
        assert (reply.code, reply.opaque, reply.flag, reply.remark) == (0, 5, 1, None)
        (message,) = await s.stored()
        assert reply.ext == {
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "msgId": message.message_id,
            "queueId": "0",
            "queueOffset": "0",
            "transactionId": KEY,
        }
        assert (message.body, message.flag, message.born_timestamp) == (b"hello", 7, 1)
        assert message.born_host == s.connection.peer_host_bytes
        assert message.properties == {
            "UNIQ_KEY": KEY, "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        }  # fmt: skip

    run(story)


def test_a_key_that_json_must_escape_is_escaped() -> None:
    async def story() -> None:
        reply = Story().send(properties='UNIQ_KEY\x01a"b\\é\x02')
        assert reply is not None
        assert reply.ext["transactionId"] == 'a"b\\é'

    run(story)


@pytest.mark.parametrize("text", ["", "TAGS\x01A", "MY_UNIQ_KEY\x01x\x02", "TAGS\x01A\x02"])
def test_a_message_without_a_unique_key_gets_one(text: str) -> None:
    async def story() -> None:
        s = Story()
        reply = s.send(properties=text)
        assert reply is not None
        (message,) = await s.stored()
        assert len(message.properties["UNIQ_KEY"]) == 32
        assert reply.ext["transactionId"] == message.properties["UNIQ_KEY"]
        assert decode_properties(text.encode()).items() <= message.properties.items()

    run(story)


def test_what_a_consumed_message_carries_is_replaced_not_doubled() -> None:
    """Sent on by a consumer it has another cluster's CLUSTER, and a POP_CK nobody needs."""

    async def story() -> None:
        s = Story()
        s.send(properties=f"UNIQ_KEY\x01{KEY}\x02CLUSTER\x01other\x02TRACE_ON\x01false\x02POP_CK\x01x\x02")
        (message,) = await s.stored()
        assert message.properties == {
            "UNIQ_KEY": KEY, "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        }  # fmt: skip

    run(story)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "../../etc"}, 29),
        ({"topic": ""}, 29),
        ({"topic": "x" * 128}, 29),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16),
        ({"topic": "new", "defaultTopic": "nothing"}, 17),
        ({"queueId": 99}, 29),
        ({"body": b""}, 1),
        ({"body": b"x" * (4 * 1024 * 1024 + 1)}, 13),
        ({"properties": "k\x01" + "v" * 40_000 + "\x02"}, 13),
        ({"batch": True, "body": b"\x00\x00\x00\xff"}, 13),
        ({"batch": True, "topic": "%RETRY%g"}, 13),
        ({"properties": "TIMER_DELAY_SEC\x01x\x02"}, 13),
        ({"properties": "TIMER_DELAY_SEC\x0199999999\x02"}, 13),
    ],
)
def test_what_is_wrong_is_told(fields: dict[str, Any], code: int) -> None:
    async def story() -> None:
        from tandemq.broker.replies import reply_of

        s = Story()
        with pytest.raises(Exception) as failure:
            s.send(fields.pop("body", b"hello"), **fields)
        assert reply_of(failure.value)[0] == code
        assert s.parts.store.appended == 0

    run(story)


def test_no_auto_creation_without_the_switch() -> None:
    async def story() -> None:
        s = Story()
        s.parts.topics.auto_create = False
        with pytest.raises(ReplyError, match="not exist") as failure:
            s.send()
        assert failure.value.code == 17

    run(story)


def test_a_negative_queue_is_any_queue() -> None:
    async def story() -> None:
        reply = Story().send(queueId=-1)
        assert reply is not None
        assert 0 <= int(reply.ext["queueId"]) < 4

    run(story)


def test_a_oneway_send_is_stored_and_never_answered() -> None:
    async def story() -> None:
        s = Story()
        assert s.send(oneway=True) is None
        assert len(await s.stored()) == 1

    run(story)


def test_a_delayed_message_goes_to_its_level() -> None:
    async def story() -> None:
        s = Story()
        reply = s.send(properties=f"UNIQ_KEY\x01{KEY}\x02DELAY\x013\x02")
        assert reply is not None
        (message,) = await s.stored("SCHEDULE_TOPIC_XXXX", 2)
        assert (message.properties["REAL_TOPIC"], message.properties["REAL_QID"]) == ("T", "0")
        assert reply.ext["msgId"] == message.message_id

    run(story)


def test_a_half_message_goes_to_the_half_topic() -> None:
    """Decided by the property: the C++ client does not set the flag bits."""

    async def story() -> None:
        s = Story()
        s.send(properties=f"UNIQ_KEY\x01{KEY}\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02", queueId=1)
        (message,) = await s.stored("RMQ_SYS_TRANS_HALF_TOPIC")
        assert message.properties["REAL_QID"] == "1"

    run(story)


def test_half_messages_can_be_refused() -> None:
    async def story() -> None:
        s = Story(reject_transaction_message=True)
        with pytest.raises(ReplyError) as failure:
            s.send(properties="TRAN_MSG\x01true\x02")
        assert failure.value.code == 16

    run(story)


def test_a_timer_message_goes_to_the_timer_topic_until_its_time() -> None:
    async def story() -> None:
        s = Story()
        s.send(properties=f"UNIQ_KEY\x01{KEY}\x02TIMER_DELAY_SEC\x0110\x02")
        assert len(await s.stored("rmq_sys_wheel_timer")) == 1
        s.send(properties=f"UNIQ_KEY\x01{KEY}\x02TIMER_DELIVER_MS\x011\x02")
        assert len(await s.stored()) == 1

    run(story)


def test_a_batch_is_stored_message_by_message() -> None:
    async def story() -> None:
        s = Story()
        body = encode_batch([(1, b"one", b"TAGS\x01A\x02"), (2, b"two", b"")])
        reply = s.send(body, batch=True, properties="WAIT\x01true\x02")
        messages = await s.stored()
        assert [(m.body, m.flag, dict(m.properties)) for m in messages] == [(b"one", 1, {"TAGS": "A"}), (b"two", 2, {})]
        assert reply is not None
        assert reply.ext["msgId"] == ",".join(m.message_id for m in messages)
        assert reply.ext["queueOffset"] == "0"

    run(story)


def test_a_batch_compressed_as_a_whole_is_opened() -> None:
    """The C++ client does that above 4 KiB."""

    async def story() -> None:
        s = Story()
        body, _ = compress(encode_batch([(0, b"x" * 5000, b"")]), 0)
        s.send(body, batch=True, sysFlag=COMPRESSED)
        (message,) = await s.stored()
        assert message.body == b"x" * 5000
        assert not message.sys_flag & COMPRESSED

    run(story)


@pytest.mark.parametrize(
    ("times", "version", "dead"), [(16, 407, False), (17, 407, True), (3, 407, True), (3, 63, False)]
)
def test_a_retry_that_was_tried_enough_is_a_dead_letter(times: int, version: int, dead: bool) -> None:
    """The header's own maximum counts for clients since V3_4_9; here it is 2 in the last two cases."""

    async def story() -> None:
        s = Story()
        maximum = 2 if times == 3 else None
        s.send(topic="%RETRY%g", reconsumeTimes=times, maxReconsumeTimes=maximum, version=version)
        topic = "%DLQ%g" if dead else "%RETRY%g"
        assert len(await s.stored(topic)) == 1

    run(story)


def test_an_ordered_group_that_gives_up_makes_a_dead_letter() -> None:
    async def story() -> None:
        s = Story()
        s.locks.lock("g", "c", [QueueRef("T", "broker-a", 0)], s.parts.clock.monotonic())
        s.send(topic="%RETRY%g", reconsumeTimes=1)
        assert len(await s.stored("%DLQ%g")) == 1

    run(story)


def test_a_slave_refuses() -> None:
    async def story() -> None:
        s = Story()
        s.parts.writer.gate.refuse("slave")
        with pytest.raises(ReplyError) as failure:
            s.send()
        assert failure.value.code == 14

    run(story)


def test_more_copies_than_there_are_is_told_at_once() -> None:
    """Stored all the same: the ids are there, because C++ reads them unchecked."""

    async def story() -> None:
        s = Story()
        s.parts.writer.level = AckLevel(2)
        reply = s.send()
        assert reply is not None
        assert reply.code == 11
        assert "no slave" in (reply.remark or "")
        assert reply.ext["msgId"]
        reply = s.send(properties=f"UNIQ_KEY\x01{KEY}\x02WAIT\x01false\x02")
        assert reply is not None
        assert reply.code == 0

    run(story)


def test_a_message_can_ask_for_copies_of_its_own_and_a_topic_for_all_of_its_own() -> None:
    async def story() -> None:
        s = Story()
        reply = s.send(properties=f"UNIQ_KEY\x01{KEY}\x02__TQ_COPIES\x012\x02")
        assert reply is not None
        assert reply.code == 11
        s.parts.topics.put(TopicConfig(name="Precious", attributes={"tandemq.copies": "majority"}))
        TellingQueue(s.parts.writer.acks).set_members(frozenset({"slave"}))
        reply = s.send(topic="Precious")
        assert reply is not None
        assert reply.code == 11
        reply = s.send()
        assert reply is not None
        assert reply.code == 0

    run(story)


def test_a_level_nobody_understands_is_refused_before_anything_is_stored() -> None:
    async def story() -> None:
        s = Story()
        with pytest.raises(ConfigError, match="ack level"):
            s.send(properties="__TQ_COPIES\x01many\x02")
        assert s.parts.store.appended == 0

    run(story)


def test_a_copy_that_comes_in_time_completes_the_send() -> None:
    async def story() -> None:
        s = Story()
        s.parts.writer.level = AckLevel(2)
        TellingQueue(s.parts.writer.acks).acked("slave", 0, 0)
        assert s.send() is None
        TellingQueue(s.parts.writer.acks).acked("slave", s.parts.store.appended, 0)
        assert s.connection.sent[-1].code == 0

    run(story)


def test_too_many_waiting_sends_are_refused_before_they_are_stored() -> None:
    async def story() -> None:
        s = Story()
        s.parts.writer.level = AckLevel(2)
        s.parts.writer.pending_max = 1
        TellingQueue(s.parts.writer.acks).acked("slave", 0, 0)
        s.send()
        before = s.parts.store.appended
        with pytest.raises(ReplyError) as failure:
            s.send()
        assert failure.value.code == 2
        assert s.parts.store.appended == before

    run(story)


def test_counted_once() -> None:
    async def story() -> None:
        s = Story()
        s.send()
        s.send(properties="DELAY\x011\x02")
        assert s.parts.stats.put_flow("T").messages == 2

    run(story)


def test_a_request_says_where_its_reply_goes() -> None:
    """No heartbeat needed; a reply that is sent as a message, or a consumer's retry, does not count as asking."""

    async def story() -> None:
        s = Story()
        s.parts.groups.find_or_create("g")
        members = s.parts.members
        s.send(properties="REPLY_TO_CLIENT\x01other\x02MSG_TYPE\x01reply\x02")
        s.send(topic="%RETRY%g", properties="REPLY_TO_CLIENT\x01other\x02")
        assert members.find_asker("other") is None
        s.send(properties="REPLY_TO_CLIENT\x01me\x02TTL\x013000\x02")
        assert members.find_asker("me") is s.connection
        (_, message) = await s.stored()
        assert message.properties["REPLY_TO_CLIENT"] == "me"

    run(story)


def test_a_half_message_leaves_room_for_what_its_checks_add() -> None:
    """A half whose copy would be too large could never be checked, nor those after it."""

    async def story() -> None:
        s = Story()
        text = f"UNIQ_KEY\x01{KEY}\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02fill\x01"
        with pytest.raises(ReplyError, match="the limit is") as refused:
            s.send(properties=f"{text}{'x' * 32_500}\x02")
        assert refused.value.code == 13
        assert not await s.stored("RMQ_SYS_TRANS_HALF_TOPIC")

    run(story)
