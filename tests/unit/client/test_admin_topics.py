"""Admin: topics and the ranges of their queues."""

import pytest
from tests.unit.client.fake_admin import asked, json_body, made, queue_table
from tests.unit.client.fake_cluster import NAMESRV, on_loop

from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError
from tandemq.model.topic import QueueRef, TopicConfig

QUEUE = QueueRef("T", "a", 0)


@on_loop
async def test_topics_are_created_listed_and_deleted() -> None:
    admin, cluster = made(
        {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda *_: json_body({"topicList": ["b", "a"]}),
            RequestCode.UPDATE_AND_CREATE_TOPIC: lambda *_: Command(0),
            RequestCode.DELETE_TOPIC_IN_BROKER: lambda *_: Command(0),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: lambda *_: Command(0),
        }
    )
    assert await admin.topics() == ["a", "b"]
    config = TopicConfig(name="new", read_queues=2, write_queues=3, order=True, attributes={"k": "v"})
    assert await admin.create_topic(config) == ["a"]
    fields = asked(cluster, RequestCode.UPDATE_AND_CREATE_TOPIC)[0].ext
    assert (fields["topic"], fields["readQueueNums"], fields["writeQueueNums"]) == ("new", "2", "3")
    assert (fields["order"], fields["attributes"]) == ("true", "+k=v")
    with pytest.raises(ClientError, match="characters"):
        await admin.create_topic(TopicConfig(name="a/b"))
    assert await admin.delete_topic("new", cluster="c") == ["a"]
    assert (NAMESRV, RequestCode.DELETE_TOPIC_IN_NAMESRV) in cluster.requests


@on_loop
async def test_a_name_server_that_is_away_does_not_keep_a_topic() -> None:
    admin, cluster = made({RequestCode.DELETE_TOPIC_IN_BROKER: lambda *_: Command(0)})
    view = await admin.cluster()

    async def known() -> object:
        return view

    admin.cluster = known  # type: ignore[assignment, method-assign]
    cluster.dead.add(NAMESRV)
    assert await admin.delete_topic("T") == ["a"]


@on_loop
async def test_ranges_of_queues_are_told() -> None:
    table = {QUEUE: {"minOffset": 2, "maxOffset": 9, "lastUpdateTimestamp": 77}}
    admin, cluster = made({RequestCode.GET_TOPIC_STATS_INFO: lambda *_: queue_table(table)}, queues=2)
    (status,) = await admin.topic_status("T")
    assert (status.queue, status.count, status.last_update_ms) == (QUEUE, 7, 77)
    cluster.store(b"1", b"2")
    assert await admin.queue_ranges("T") == {QUEUE: (0, 2), QueueRef("T", "a", 1): (0, 0)}
    assert await admin.queue_range(QUEUE) == (0, 2)
    assert await admin.offset_at(QUEUE, 1000) == 0
    assert len(await admin.queues("T")) == 2
