"""Admin: consumer groups and their offsets."""

import pytest
from tests.unit.client.fake_admin import asked, json_body, made, queue_table
from tests.unit.client.fake_cluster import on_loop

from tandemq.client.admin_groups import LATEST
from tandemq.codec import bodies
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError, ReplyError
from tandemq.model.topic import QueueRef, SubscriptionGroupConfig

QUEUE = QueueRef("T", "a", 0)


@on_loop
async def test_groups_are_created_listed_and_deleted() -> None:
    table = {"g": bodies.group_config_json(SubscriptionGroupConfig(name="g"))}
    listed = json_body({"subscriptionGroupTable": table, "dataVersion": {"counter": 1, "timestamp": 1}})
    admin, cluster = made(
        {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda *_: listed,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda *_: Command(0),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: lambda *_: Command(0),
        }
    )
    assert list(await admin.groups()) == ["g"]
    assert await admin.create_group(SubscriptionGroupConfig(name="new")) == ["a"]
    with pytest.raises(ClientError, match="a b"):
        await admin.create_group(SubscriptionGroupConfig(name="a b"))
    assert await admin.delete_group("g", offsets=False) == ["a"]
    assert asked(cluster, RequestCode.DELETE_SUBSCRIPTIONGROUP)[0].ext["cleanOffset"] == "false"


@on_loop
async def test_progress_is_summed_over_the_masters() -> None:
    numbers = {"brokerOffset": 10, "consumerOffset": 4, "lastTimestamp": 1}
    admin, cluster = made({RequestCode.GET_CONSUME_STATS: lambda *_: queue_table({QUEUE: numbers}, consumeTps=2.5)})
    progress = await admin.progress("g", "T")
    assert (progress.lag, progress.consume_tps, progress.queues[0].queue) == (6, 2.5, QUEUE)
    assert asked(cluster, RequestCode.GET_CONSUME_STATS)[0].ext["topic"] == "T"
    cluster.on[RequestCode.GET_CONSUME_STATS] = lambda *_: Command(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
    assert (await admin.progress("unknown")).queues == ()
    cluster.on[RequestCode.GET_CONSUME_STATS] = lambda *_: Command(ResponseCode.NO_PERMISSION, remark="no")
    with pytest.raises(ReplyError):
        await admin.progress("g")


@on_loop
async def test_members_that_are_connected_are_listed() -> None:
    connections = [{"clientId": "me", "clientAddr": "1.2.3.4:5", "language": "PYTHON", "version": 7}]
    admin, cluster = made(
        {RequestCode.GET_CONSUMER_CONNECTION_LIST: lambda *_: json_body({"connectionSet": connections})}
    )
    (member,) = await admin.members("g")
    assert (member.client_id, member.address, member.version) == ("me", "1.2.3.4:5", 7)
    cluster.on[RequestCode.GET_CONSUMER_CONNECTION_LIST] = lambda *_: Command(ResponseCode.CONSUMER_NOT_ONLINE)
    assert await admin.members("g") == []


@on_loop
async def test_groups_of_a_topic_are_found() -> None:
    admin, _ = made({RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: lambda *_: json_body({"groupList": ["h", "g"]})})
    assert await admin.groups_of_topic("T") == ["g", "h"]


@on_loop
async def test_offsets_are_reset_by_the_broker_or_directly_where_it_refuses() -> None:
    admin, cluster = made({RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: lambda *_: queue_table({QUEUE: 3})})
    assert await admin.reset_offsets("g", "T", 1000) == {QUEUE: 3}
    cluster.on[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] = lambda *_: Command(ResponseCode.CONSUMER_NOT_ONLINE)
    cluster.store(b"1", b"2")
    assert await admin.reset_offsets("g", "T", LATEST) == {QUEUE: 2}
    assert cluster.offsets["g", QUEUE] == 2
    assert await admin.reset_offsets("g", "T", 1000) == {QUEUE: 0}
    cluster.on[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] = lambda *_: Command(ResponseCode.NO_PERMISSION, remark="no")
    with pytest.raises(ReplyError):
        await admin.reset_offsets("g", "T", 1000)
    await admin.set_offset("g", QUEUE, 9)
    assert cluster.offsets["g", QUEUE] == 9
