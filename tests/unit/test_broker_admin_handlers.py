"""Administration: the shapes upstream's tools read, the effects they expect."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tandemq.broker.delay import DelaySchedule
from tandemq.broker.handlers.admin import AdminHandlers
from tandemq.broker.handlers.clients_admin import ClientAdminHandlers
from tandemq.broker.handlers.peers import TIMER_CHECKPOINT, HaFacts, PeerHandlers
from tandemq.broker.handlers.reset import ResetHandlers
from tandemq.broker.subscriptions import parse_subscription
from tandemq.broker.timers import TimerService
from tandemq.codec import bodies, fastjson
from tandemq.codec.command import Command
from tandemq.errors import ReplyError, RequestTimeout
from tandemq.model.topic import QueueRef, SubscriptionGroupConfig
from tandemq.testing.broker_parts import ADDRESS, HOST, BrokerParts, FakeConnection, decoded


class Story:
    def __init__(self) -> None:
        p = self.parts = BrokerParts()
        self.slave = False
        self.woken: list[tuple[str, int]] = []
        self.announced: list[tuple[str, str]] = []
        self.consumer, self.admin = FakeConnection(), FakeConnection("10.0.0.7:1")
        schedule = DelaySchedule((1000,), p.clock.wall_ms)
        families = (
            AdminHandlers(
                p.live, p.store, p.topics, p.groups, p.offsets, p.members, p.stats, p.progress, p.clock,
                address=ADDRESS, runtime_info=lambda: {"putTps": "1 2 3"},
            ),
            ClientAdminHandlers(p.store, p.topics, p.groups, p.members, p.clock, broker_name="broker-a"),
            ResetHandlers(
                p.live, p.store, p.topics, p.groups, p.offsets, p.members,
                is_slave=lambda: self.slave, wake=lambda topic, queue: self.woken.append((topic, queue)),
            ),
            PeerHandlers(
                schedule, TimerService(p.store, p.writer, p.clock, store_host=HOST), p.clock,
                is_slave=lambda: self.slave, address=ADDRESS,
                ha_facts=lambda: HaFacts(ha_address="10.0.0.1:10912", master_flush_offset=7, extra={"ours": "1"}),
                ha_status=lambda: {"master": True},
                master_announced=lambda ha, address: self.announced.append((ha, address)),
            ),
        )  # fmt: skip
        self.table: dict[int, Any] = {}
        for family in families:
            self.table.update(family.handlers())

    async def fill(self) -> None:
        self.parts.topic("T", 2)
        self.parts.groups.put(SubscriptionGroupConfig(name="g"))
        for n in range(5):
            self.parts.send("T", b"%d" % n, n % 2, TAGS="A" if n < 3 else "B")
            self.parts.clock.advance(1)
        await self.parts.settle()
        self.parts.offsets.commit("g", "T", 0, 2)

    def connect(self, language: str = "JAVA", version: int = 407) -> None:
        self.parts.members.register_consumer(
            "g", self.consumer, "client-1", language, version, 990.0,  # type: ignore[arg-type]
            consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING", consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscriptions=[parse_subscription("T", "A", version=5)],
        )  # fmt: skip

    async def reply(self, code: int, **ext: str) -> Command:
        result = self.table[code](self.admin, Command(code, ext))
        if isinstance(result, Awaitable):
            result = await result
        return decoded(result)[0]

    async def json(self, code: int, **ext: str) -> Any:
        return fastjson.loads((await self.reply(code, **ext)).body)

    async def refusal(self, code: int, **ext: str) -> int:
        with pytest.raises(ReplyError) as caught:
            await self.reply(code, **ext)
        return caught.value.code


def run(story: Callable[[Story], Awaitable[None]]) -> None:
    async def main() -> None:
        s = Story()
        await s.fill()
        await story(s)

    asyncio.run(main())


def _queue(queue_id: int) -> QueueRef:
    return QueueRef("T", "broker-a", queue_id)


def test_topic_stats() -> None:
    """Offsets and the newest message's time of every queue; 17 for an unknown topic."""

    async def story(s: Story) -> None:
        found = await s.json(202, topic="T")
        table = bodies.queue_table_of(found["offsetTable"])
        assert (table[_queue(0)]["minOffset"], table[_queue(0)]["maxOffset"]) == (0, 3)
        assert table[_queue(0)]["lastUpdateTimestamp"] == s.parts.read("T")[-1].store_timestamp
        assert await s.refusal(202, topic="none") == 17
        assert (await s.json(28))["table"] == {"putTps": "1 2 3"}

    run(story)


def test_consume_stats() -> None:
    """How far a group is on each queue; without a topic, all it has offsets on; the whole broker too."""

    async def story(s: Story) -> None:
        for ext in ({}, {"topic": "T"}, {"topicList": "T;"}):
            table = bodies.queue_table_of((await s.json(208, consumerGroup="g", **ext))["offsetTable"])
            assert (table[_queue(0)]["brokerOffset"], table[_queue(0)]["consumerOffset"]) == (3, 2)
            assert table[_queue(0)]["lastTimestamp"] == s.parts.read("T")[1].store_timestamp
            assert table[_queue(1)] == {"brokerOffset": 2, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0}
        s.connect()
        assert bodies.queue_table_of((await s.json(208, consumerGroup="g", topic="other"))["offsetTable"]) == {}
        whole = await s.json(317)
        assert (whole["totalDiff"], whole["brokerAddr"]) == (3, ADDRESS)
        assert next(entry for entry in whole["consumeStatsList"] if "g" in entry)["g"]
        assert (await s.json(317, isOrder="true"))["totalDiff"] == 0

    run(story)


def test_who_consumes_what() -> None:
    """Groups by topic, topics by group, a live subscription, the time span of queues."""

    async def story(s: Story) -> None:
        assert await s.json(300, topic="T") == {"groupList": ["g"]}
        assert (await s.json(343, group="g"))["topicList"] == ["T"]
        assert "subscriptionData" not in await s.json(345, group="g", topic="T")
        s.connect()
        assert (await s.json(345, group="g", topic="T"))["subscriptionData"]["tagsSet"] == ["A"]
        spans = (await s.json(303, topic="T", group="g"))["consumeTimeSpanSet"]
        stored = [m.store_timestamp for m in s.parts.read("T")]
        assert (spans[0]["minTimeStamp"], spans[0]["maxTimeStamp"]) == (stored[0], stored[-1])
        assert spans[0]["consumeTimeStamp"] == stored[1]
        assert spans[0]["delayTime"] == s.parts.clock.wall_ms() - stored[2]
        assert "TBW102" in (await s.json(305))["topicList"]
        assert (await s.json(308, topic="T"))["correctionOffsets"] == {0: 2}

    run(story)


def test_statistics_and_queue_contents() -> None:
    """VIEW_BROKER_STATS_DATA and QUERY_CONSUME_QUEUE, filtered by a live group's subscription."""

    async def story(s: Story) -> None:
        s.parts.stats.put_flow("T").add(5, 500)
        data = await s.json(315, statsName="TOPIC_PUT_NUMS", statsKey="T")
        assert [data[name]["sum"] for name in ("statsMinute", "statsHour", "statsDay")] == [5, 5, 5]
        assert await s.refusal(315, statsName="TOPIC_PUT_NUMS", statsKey="none") == 1
        found = await s.json(321, topic="T", queueId="0", index="1", count="9", consumerGroup="g")
        assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
        assert "not online" in found["filterData"]
        s.connect()
        found = await s.json(321, topic="T", queueId="0", index="0", count="9", consumerGroup="g")
        assert [entry["eval"] for entry in found["queueData"]] == [True, True, False]
        assert await s.refusal(321, topic="T", queueId="7", index="0", count="1") == 1

    run(story)


def test_cleaning() -> None:
    """Queues without a topic go; retention runs on request."""

    async def story(s: Story) -> None:
        s.parts.topics.delete("T")
        for code in (316, 306, 329):
            assert (await s.reply(code)).code == 0
        assert "T" not in {topic for topic, _ in s.parts.store.queues()}

    run(story)


def test_forbidding_a_group_to_read() -> None:
    """Set, shown, unset."""

    async def story(s: Story) -> None:
        assert (await s.json(353, group="g", topic="T"))["readable"] is True
        assert (await s.json(353, group="g", topic="T", readable="false"))["readable"] is False
        assert s.parts.groups.is_forbidden("g", "T")
        assert (await s.json(353, group="g", topic="T", readable="true"))["readable"] is True

    run(story)


def test_connections() -> None:
    """Who is connected; 206 for an absent consumer group, 1 for an absent producer group."""

    async def story(s: Story) -> None:
        assert await s.refusal(203, consumerGroup="g") == 206
        assert await s.refusal(204, producerGroup="p") == 1
        s.connect()
        s.parts.members.register_producer("p", s.admin, "client-2", "GO", 317, s.parts.clock.monotonic() - 2)  # type: ignore[arg-type]
        found = await s.json(203, consumerGroup="g")
        assert found["connectionSet"] == [
            {"clientAddr": s.consumer.peer, "clientId": "client-1", "language": "JAVA", "version": 407}
        ]
        assert found["subscriptionTable"]["T"]["subString"] == "A"
        assert (await s.json(204, producerGroup="p"))["connectionSet"][0]["clientId"] == "client-2"
        (producer,) = (await s.json(328))["data"]["p"]
        assert producer["lastUpdateTimestamp"] == s.parts.clock.wall_ms() - 2000

    run(story)


def test_questions_are_handed_to_the_client() -> None:
    """307 and 309 reach the client's connection and its answer comes back; silence and absence have codes."""

    async def story(s: Story) -> None:
        assert await s.refusal(307, consumerGroup="g", clientId="client-1") == 1
        s.connect()
        s.consumer.answers += [Command(0, {"x": "y"}, b"{}"), Command(0), RequestTimeout("silent")]
        reply = await s.reply(307, consumerGroup="g", clientId="client-1", jstackEnable="false")
        assert (reply.code, reply.ext["x"], bytes(reply.body)) == (0, "y", b"{}")
        message_id = s.parts.read("T")[0].message_id
        assert (await s.reply(309, consumerGroup="g", clientId="client-1", msgId=message_id, topic="T")).code == 0
        assert s.consumer.invoked[1].ext["brokerName"] == "broker-a"
        assert len(s.consumer.invoked[1].body) == s.parts.read("T")[0].size
        assert await s.refusal(307, consumerGroup="g", clientId="client-1") == 207
        assert await s.refusal(309, consumerGroup="g", clientId="client-1", msgId="nonsense") == 1
        s.consumer.answers.append(Command(0, {}, b'{"messageQueueTable":{}}'))
        assert await s.json(223, group="g", topic="T") == {"consumerTable": {"client-1": {}}}

    run(story)


def test_reset_by_time_and_by_offset() -> None:
    """The new offsets are noted, parked pulls woken, and the table answered with queues as keys."""

    async def story(s: Story) -> None:
        stored = [m.store_timestamp for m in s.parts.read("T")]
        found = await s.json(222, topic="T", group="g", timestamp=str(stored[1]), isForce="true")
        assert bodies.queue_table_of(found["offsetTable"]) == {_queue(0): 1, _queue(1): 1}
        assert s.parts.offsets.take_reset("g", "T", 0) == 1
        assert s.woken == [("T", 0), ("T", 1)]
        found = await s.json(222, topic="T", group="g", timestamp="-1", isForce="true")
        assert bodies.queue_table_of(found["offsetTable"]) == {_queue(0): 3, _queue(1): 2}
        found = await s.json(222, topic="T", group="g", timestamp="-1", isForce="true", queueId="1", offset="1")
        assert bodies.queue_table_of(found["offsetTable"]) == {_queue(1): 1}
        assert await s.refusal(222, topic="T", group="g", timestamp="-1", queueId="1", offset="99") == 1
        assert await s.refusal(222, topic="none", group="g", timestamp="-1") == 17
        assert await s.refusal(222, topic="T", group="none", timestamp="-1") == 26
        s.slave = True
        assert await s.refusal(222, topic="T", group="g", timestamp="-1") == 1

    run(story)


@pytest.mark.parametrize(
    ("language", "version", "start"),
    [("JAVA", 407, b'{"offsetTable":{{'), ("CPP", 63, b'{"offsetTable":[{'), ("JAVA", 479, None)],
)
def test_older_clients_are_told_of_a_reset_in_their_form(language: str, version: int, start: bytes | None) -> None:
    """C++ reads a list, others queues as keys; 5.x needs no push."""

    async def story(s: Story) -> None:
        s.connect(language, version)
        await s.reply(222, topic="T", group="g", timestamp="-1", isForce="true")
        assert [bytes(c.body[: len(start or b"")]) for c in s.consumer.sent] == ([] if start is None else [start])
        assert all((c.code, c.ext["group"]) == (220, "g") for c in s.consumer.sent)

    run(story)


def test_cloning_offsets() -> None:
    """The target group starts where the source is."""

    async def story(s: Story) -> None:
        assert (await s.reply(314, srcGroup="g", destGroup="copy", topic="T", offline="true")).code == 0
        assert s.parts.offsets.query("copy", "T", 0) == 2
        assert "copy" in s.parts.groups

    run(story)


def test_what_other_brokers_ask() -> None:
    """Delay offsets with unquoted keys, timer checkpoint, empty tables, HA info by role."""

    async def story(s: Story) -> None:
        assert b'"offsetTable":{}' in bytes((await s.reply(45)).body)
        assert len((await s.reply(60)).body) == TIMER_CHECKPOINT.size == 56
        assert (await s.json(61))["timingCount"] == {}
        assert await s.json(402) == {"messageRequestModeMap": {}}
        assert await s.json(907) == {"master": True}
        assert (await s.reply(905, minBrokerId="1")).code == 0
        told = (await s.reply(906)).ext
        assert told == {
            "masterHaAddress": "10.0.0.1:10912", "masterFlushOffset": "7", "masterAddress": ADDRESS, "ours": "1",
        }  # fmt: skip
        await s.reply(906, masterHaAddress="x:1", masterAddress="x:2")
        assert s.announced == []
        s.slave = True
        await s.reply(906, masterHaAddress="x:1", masterAddress="x:2")
        assert s.announced == [("x:1", "x:2")]
        assert (await s.reply(906)).ext == {"ours": "1"}
        assert (await s.reply(908, masterFlushOffset="9")).code == 0

    run(story)
