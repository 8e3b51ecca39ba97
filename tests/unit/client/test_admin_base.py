"""Admin: brokers, their options, whom to ask about a topic."""

import pytest
from tests.unit.client.fake_admin import asked, json_body, made
from tests.unit.client.fake_cluster import on_loop

from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import ClientError, NoRoute, ReplyError

PAIR = {"a": {0: "m:1", 1: "s:1"}}


@on_loop
async def test_the_cluster_is_what_name_servers_know() -> None:
    admin, _ = made(brokers=PAIR)
    async with admin:
        view = await admin.cluster()
    assert view.clusters == {"c": ("a",)}
    assert view.groups["a"].addresses == {0: "m:1", 1: "s:1"}


@on_loop
async def test_facts_and_options_are_text() -> None:
    admin, cluster = made(
        {
            RequestCode.GET_BROKER_RUNTIME_INFO: lambda *_: json_body({"table": {"brokerVersion": "1"}}),
            RequestCode.GET_BROKER_CONFIG: lambda *_: Command(0, None, b"brokerName=a\nempty=\n# no option\n"),
            RequestCode.UPDATE_BROKER_CONFIG: lambda *_: Command(0),
        }
    )
    assert (await admin.broker("a:1")).facts == {"brokerVersion": "1"}
    assert await admin.broker_config("a:1") == {"brokerName": "a", "empty": ""}
    await admin.update_broker_config("a:1", {"x": "1", "y": "2"})
    assert asked(cluster, RequestCode.UPDATE_BROKER_CONFIG)[0].body == b"x=1\ny=2\n"
    for wrong in ({"a=b": "c"}, {"a": "b\nc"}):
        with pytest.raises(ClientError, match="option"):
            await admin.update_broker_config("a:1", wrong)


@on_loop
async def test_replication_is_shown_with_what_is_ours_apart() -> None:
    answer = {
        "master": True,
        "masterCommitLogMaxOffset": 100,
        "inSyncSlaveNums": 1,
        "haConnectionInfo": [{"addr": "s:2", "slaveAckOffset": 90, "diff": 10, "inSync": True, "ours": 1}],
        "haClientRuntimeInfo": {},
        "epoch": 3,
    }
    admin, _ = made({RequestCode.GET_BROKER_HA_STATUS: lambda *_: json_body(answer)})
    view = await admin.ha_status("a:1")
    (replica,) = view.replicas
    assert (view.master, view.max_offset, view.in_sync, view.extra) == (True, 100, 1, {"epoch": 3})
    assert (replica.acked_offset, replica.behind, replica.in_sync, replica.extra) == (90, 10, True, {"ours": 1})


@on_loop
async def test_masters_are_found_by_cluster_and_by_name() -> None:
    admin, cluster = made(brokers={"a": {0: "a:1"}, "b": {1: "b:1"}})
    assert await admin._masters(None, ()) == {"a": "a:1"}
    assert await admin._masters("c", ()) == {"a": "a:1"}
    for arguments, words in ((("other", ()), "cluster 'other'"), ((None, ("z",)), "'z' is unknown")):
        with pytest.raises(ClientError, match=words):
            await admin._masters(*arguments)
    cluster.brokers["a"] = {1: "a:1"}
    with pytest.raises(ClientError, match="no broker has a master"):
        await admin._masters(None, ())


@on_loop
async def test_a_topic_is_asked_about_at_its_master_or_a_slave() -> None:
    admin, cluster = made(brokers=PAIR)
    assert await admin._readers("T") == [("a", "m:1")]
    cluster.brokers["a"] = {1: "s:1"}
    assert await admin._readers("T") == [("a", "s:1")]
    with pytest.raises(NoRoute):
        await admin._readers("unknown")
    cluster.brokers["a"] = {}
    with pytest.raises(NoRoute, match="no broker with an address"):
        await admin._readers("T")


@on_loop
async def test_a_refusal_is_an_error() -> None:
    admin, _ = made({RequestCode.GET_BROKER_CONFIG: lambda *_: Command(1, remark="not you")})
    with pytest.raises(ReplyError, match="not you"):
        await admin.broker_config("a:1")
