"""Administration: the shapes upstream's tools read, the effects they expect."""

from tests.unit.broker.handlers.admin_story import AdminStory, queue_of_t, run_story

from tandemq.codec import bodies
from tandemq.testing.broker_parts import ADDRESS


def test_topic_stats() -> None:
    """Offsets and the newest message's time of every queue; 17 for an unknown topic."""

    async def story(s: AdminStory) -> None:
        found = await s.json(202, topic="T")
        table = bodies.queue_table_of(found["offsetTable"])
        assert (table[queue_of_t(0)]["minOffset"], table[queue_of_t(0)]["maxOffset"]) == (0, 3)
        assert table[queue_of_t(0)]["lastUpdateTimestamp"] == s.parts.read("T")[-1].store_timestamp
        assert await s.refusal(202, topic="none") == 17
        assert (await s.json(28))["table"] == {"putTps": "1 2 3"}

    run_story(story)


def test_consume_stats() -> None:
    """How far a group is on each queue; without a topic, all it has offsets on; the whole broker too."""

    async def story(s: AdminStory) -> None:
        for ext in ({}, {"topic": "T"}, {"topicList": "T;"}):
            table = bodies.queue_table_of((await s.json(208, consumerGroup="g", **ext))["offsetTable"])
            assert (table[queue_of_t(0)]["brokerOffset"], table[queue_of_t(0)]["consumerOffset"]) == (3, 2)
            assert table[queue_of_t(0)]["lastTimestamp"] == s.parts.read("T")[1].store_timestamp
            assert table[queue_of_t(1)] == {"brokerOffset": 2, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0}
        s.connect()
        assert bodies.queue_table_of((await s.json(208, consumerGroup="g", topic="other"))["offsetTable"]) == {}
        whole = await s.json(317)
        assert (whole["totalDiff"], whole["brokerAddr"]) == (3, ADDRESS)
        assert next(entry for entry in whole["consumeStatsList"] if "g" in entry)["g"]
        assert (await s.json(317, isOrder="true"))["totalDiff"] == 0

    run_story(story)


def test_who_consumes_what() -> None:
    """Groups by topic, topics by group, a live subscription, the time span of queues."""

    async def story(s: AdminStory) -> None:
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

    run_story(story)


def test_statistics_and_queue_contents() -> None:
    """VIEW_BROKER_STATS_DATA and QUERY_CONSUME_QUEUE, filtered by a live group's subscription."""

    async def story(s: AdminStory) -> None:
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

    run_story(story)


def test_cleaning() -> None:
    """Queues without a topic go; retention runs on request."""

    async def story(s: AdminStory) -> None:
        s.parts.topics.delete("T")
        for code in (316, 306, 329):
            assert (await s.reply(code)).code == 0
        await s.parts.settle()
        assert "T" not in {topic for topic, _ in s.parts.store.reader.queues()}

    run_story(story)


def test_forbidding_a_group_to_read() -> None:
    """Set, shown, unset."""

    async def story(s: AdminStory) -> None:
        assert (await s.json(353, group="g", topic="T"))["readable"] is True
        assert (await s.json(353, group="g", topic="T", readable="false"))["readable"] is False
        assert s.parts.groups.is_forbidden("g", "T")
        assert (await s.json(353, group="g", topic="T", readable="true"))["readable"] is True

    run_story(story)
