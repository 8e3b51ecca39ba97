"""Questions and commits about offsets: what a group that has none is told, and which commits are refused."""

import json

from tests.unit.broker.handlers.table_story import TableStory, told

from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.replication.metadata import LOG_END

QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
NEWEST, OLDEST = RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET
SEARCH, EARLIEST = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_EARLIEST_MSG_STORETIME
GROUP = {"consumerGroup": "g", "topic": "T", "queueId": "0"}


async def filled(story: TableStory, count: int = 3) -> None:
    story.parts.topic("T", 2)
    for _ in range(count):
        story.parts.send("T")
        story.parts.clock.advance(1)
    await story.parts.settle()


@told
async def test_what_was_committed_is_answered(story: TableStory) -> None:
    await filled(story)
    await story.ask(UPDATE, commitOffset="2", **GROUP)
    assert (await story.ask(QUERY, **GROUP)).ext["offset"] == "2"


@told
async def test_a_new_group_of_a_young_queue_starts_at_its_first_message(story: TableStory) -> None:
    await filled(story)
    assert (await story.ask(QUERY, **GROUP)).ext["offset"] == "0"
    error = await story.refused(QUERY, setZeroIfNotFound="false", **GROUP)
    assert error.code == ResponseCode.QUERY_NOT_FOUND


@told
async def test_commits_name_what_exists(story: TableStory) -> None:
    await filled(story)
    other = await story.refused(UPDATE, commitOffset="1", **(GROUP | {"topic": "U"}))
    assert other.code == ResponseCode.TOPIC_NOT_EXIST
    beyond = await story.refused(UPDATE, commitOffset="1", **(GROUP | {"queueId": "2"}))
    assert "queueId[2]" in str(beyond)
    missing = await story.refused(UPDATE, **GROUP)
    assert "commitOffset" in str(missing)
    assert story.parts.offsets.query("g", "T", 0) == -1


@told
async def test_an_administrator_s_reset_is_not_overwritten_by_a_late_commit(story: TableStory) -> None:
    await filled(story)
    story.parts.offsets.set_reset("g", "T", 0, 0)
    await story.ask(UPDATE, commitOffset="3", **GROUP)
    assert story.parts.offsets.query("g", "T", 0) == 0


@told
async def test_where_a_queue_begins_and_ends(story: TableStory) -> None:
    await filled(story)
    queue = {"topic": "T", "queueId": "0"}
    assert (await story.ask(OLDEST, **queue)).ext["offset"] == "0"
    assert (await story.ask(NEWEST, **queue)).ext["offset"] == "3"
    assert (await story.ask(NEWEST, topic="T", queueId="1")).ext["offset"] == "0"


@told
async def test_a_time_finds_the_first_message_stored_then_or_later(story: TableStory) -> None:
    await filled(story)
    times = [message.store_timestamp for message in story.parts.read("T")]
    queue = {"topic": "T", "queueId": "0"}
    assert (await story.ask(SEARCH, timestamp=str(times[1]), **queue)).ext["offset"] == "1"
    assert (await story.ask(SEARCH, timestamp=str(times[0] - 5), **queue)).ext["offset"] == "0"
    assert (await story.ask(EARLIEST, **queue)).ext["timestamp"] == str(times[0])


@told
async def test_slaves_get_every_offset_with_the_position_it_is_true_at(story: TableStory) -> None:
    await filled(story)
    await story.ask(UPDATE, commitOffset="2", **GROUP)
    answer = await story.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert answer.ext[LOG_END] == str(story.parts.store.appended)
    assert b'"T@g":{0:2}' in bytes(answer.body)
    assert json.loads(bytes(answer.body).replace(b"{0:", b'{"0":'))["offsetTable"] == {"T@g": {"0": 2}}
