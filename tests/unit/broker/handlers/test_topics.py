"""Administration of topics: what is created, changed, deleted and refused, and when it is on disk."""

import json

import pytest
from tests.unit.broker.handlers.table_story import TableStory, told

from tandemq.broker.handlers.topics import ATTRIBUTES_LENGTH_MAX, changed_attributes, page_of
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.errors import ReplyError
from tandemq.model.topic import DataVersion

UPDATE, UPDATE_LIST = RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
DELETE, ALL, ONE = RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_TOPIC_CONFIG
FIELDS = {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}


@told
async def test_a_new_topic_is_on_disk_before_it_is_answered(story: TableStory) -> None:
    await story.ask(UPDATE, topic="T", **FIELDS)
    assert story.topic("T").write_queues == 4
    assert story.file.saves == 1


@told
async def test_attributes_that_are_not_named_stay(story: TableStory) -> None:
    await story.ask(UPDATE, topic="T", attributes="+tandemq.copies=2,+a=1", **FIELDS)
    await story.ask(UPDATE, topic="T", attributes="-a", **FIELDS)
    assert story.topic("T").attributes == {"tandemq.copies": "2"}


@told
async def test_a_wrong_number_of_copies_is_refused(story: TableStory) -> None:
    error = await story.refused(UPDATE, topic="T", attributes="+tandemq.copies=nine", **FIELDS)
    assert error.code == ResponseCode.INVALID_PARAMETER
    assert "tandemq.copies" in str(error)
    assert "nine" in str(error)
    assert "T" not in story.parts.topics


@told
async def test_topics_of_the_broker_itself_are_left_alone(story: TableStory) -> None:
    for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102"):
        assert "system topic" in str(await story.refused(UPDATE, topic=name, **FIELDS))
        assert "system topic" in str(await story.refused(DELETE, topic=name))


@told
async def test_an_illegal_name_is_refused_by_both(story: TableStory) -> None:
    for name in ("a b", "a/b", "x" * 128):
        for code in (UPDATE, DELETE):
            assert (await story.refused(code, topic=name, **FIELDS)).code == ResponseCode.INVALID_PARAMETER
    assert story.file.saves == 0


@told
async def test_a_list_is_taken_whole_or_not_at_all(story: TableStory) -> None:
    one = {"topicName": "A", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    await story.refused(UPDATE_LIST, {"topicConfigList": [one, {**one, "topicName": "b b"}]})
    assert "A" not in story.parts.topics
    await story.ask(UPDATE_LIST, {"topicConfigList": [one, {**one, "topicName": "B"}]})
    assert story.topic("A").read_queues == story.topic("B").read_queues == 2
    assert "empty" in str(await story.refused(UPDATE_LIST, {"topicConfigList": []}))


@told
async def test_a_deleted_topic_leaves_no_offsets_and_the_log_says_so(story: TableStory) -> None:
    story.parts.topic("T")
    story.parts.send("T")
    story.parts.offsets.commit("g", "T", 0, 1)
    before = story.parts.store.appended
    await story.ask(DELETE, topic="T")
    assert "T" not in story.parts.topics
    assert story.parts.offsets.query("g", "T", 0) == -1
    assert story.deleted == ["T"]
    assert story.parts.store.appended > before


@told
async def test_deleting_what_is_not_there_changes_nothing(story: TableStory) -> None:
    before = story.parts.store.appended
    await story.ask(DELETE, topic="nobody")
    assert story.deleted == []
    assert story.parts.store.appended == before
    assert story.file.saves == 0


@told
async def test_one_topic_or_that_there_is_none(story: TableStory) -> None:
    story.parts.topic("T", 3)
    answer = await story.ask(ONE, topic="T")
    assert json.loads(bytes(answer.body))["readQueueNums"] == 3
    assert (await story.refused(ONE, topic="U")).code == ResponseCode.TOPIC_NOT_EXIST


@told
async def test_a_slave_gets_pages_if_it_asks_for_them(story: TableStory) -> None:
    whole = await story.ask(ALL)
    total = int(whole.ext["totalTopicNum"])
    assert len(json.loads(bytes(whole.body))["topicConfigTable"]) == total > 2
    version = json.dumps(json.loads(bytes(whole.body))["dataVersion"])
    page = await story.ask(ALL, topicSeq="1", maxTopicNum="2", dataVersion=version)
    assert len(json.loads(bytes(page.body))["topicConfigTable"]) == 2


def test_a_page_of_another_version_starts_again() -> None:
    names, version = [f"t{n}" for n in range(5)], DataVersion(counter=7)
    asked = {"topicSeq": "3", "maxTopicNum": "2"}
    assert list(page_of(names, asked, "topicSeq", "maxTopicNum", version)) == ["t3", "t4"]
    stale = asked | {"dataVersion": '{"counter":6,"timestamp":0}'}
    assert list(page_of(names, stale, "topicSeq", "maxTopicNum", version)) == ["t0", "t1"]
    assert list(page_of(names, {}, "topicSeq", "maxTopicNum", version)) == names


@pytest.mark.parametrize("text", ["a=1", "+", "+=1", "*a=1", "+a=1,b"])
def test_attributes_need_a_sign_and_a_name(text: str) -> None:
    with pytest.raises(ReplyError, match=r"\+key=value or -key expected"):
        changed_attributes({}, text)


def test_attributes_have_a_bound() -> None:
    with pytest.raises(ReplyError, match=f"at most {ATTRIBUTES_LENGTH_MAX}"):
        changed_attributes({}, "+" + "a" * ATTRIBUTES_LENGTH_MAX)
