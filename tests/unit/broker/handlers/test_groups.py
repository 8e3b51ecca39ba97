"""Administration of consumer groups: what is created, deleted and refused, and when it is on disk."""

import json

from tests.unit.broker.handlers.table_story import TableStory, told

from tandemq.codec.codes import RequestCode, ResponseCode

UPDATE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
UPDATE_LIST = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP
ALL, ONE = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG


@told
async def test_a_group_is_on_disk_before_it_is_answered(story: TableStory) -> None:
    await story.ask(UPDATE, {"groupName": "g", "retryMaxTimes": 3})
    assert story.parts.groups.all()["g"].retry_max_times == 3
    assert story.file.saves == 1


@told
async def test_a_list_is_taken_whole_or_not_at_all(story: TableStory) -> None:
    await story.refused(UPDATE_LIST, {"groupConfigList": [{"groupName": "a"}, {"groupName": "b b"}]})
    assert "a" not in story.parts.groups.all()
    await story.ask(UPDATE_LIST, {"groupConfigList": [{"groupName": "a"}, {"groupName": "b"}]})
    assert {"a", "b"} <= set(story.parts.groups.all())
    assert "empty" in str(await story.refused(UPDATE_LIST, {"groupConfigList": []}))


@told
async def test_a_deleted_group_keeps_its_offsets_unless_told_otherwise(story: TableStory) -> None:
    story.parts.topic("T")
    for name in ("kept", "gone"):
        await story.ask(UPDATE, {"groupName": name})
        story.parts.offsets.commit(name, "T", 0, 5)
    await story.ask(DELETE, groupName="kept")
    await story.ask(DELETE, groupName="gone", cleanOffset="true")
    assert not {"kept", "gone"} & set(story.parts.groups.all())
    assert story.parts.offsets.query("kept", "T", 0) == 5
    assert story.parts.offsets.query("gone", "T", 0) == -1


@told
async def test_a_group_of_the_broker_itself_stays(story: TableStory) -> None:
    error = await story.refused(DELETE, groupName="TOOLS_CONSUMER")
    assert error.code == ResponseCode.INVALID_PARAMETER
    assert "belongs to the broker" in str(error)


@told
async def test_slaves_get_all_groups_and_administrators_one(story: TableStory) -> None:
    await story.ask(UPDATE, {"groupName": "g", "consumeEnable": False})
    answer = await story.ask(ALL)
    table = json.loads(bytes(answer.body))["subscriptionGroupTable"]
    assert int(answer.ext["totalGroupNum"]) == len(table)
    assert table["g"]["consumeEnable"] is False
    assert json.loads(bytes((await story.ask(ONE, group="g")).body))["groupName"] == "g"
