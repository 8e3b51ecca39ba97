"""RocketMQ 5's answer in our words; what ours answer is tested against real brokers in tests/cli/test_ha.py."""

from tandemq.cli.ha_nodes import from_rocketmq5
from tandemq.cli.ha_view import judge, worst


def test_a_slave_that_rocketmq_calls_behind_is_not_in_sync() -> None:
    connection = {"addr": "10.0.0.2:40000", "slaveAckOffset": 70, "diff": 30, "inSync": True}
    body = {"master": True, "masterCommitLogMaxOffset": 100, "haConnectionInfo": [connection]}
    node = {"broker": "b", "address": "10.0.0.1:10911", **from_rocketmq5(body)}
    assert (node["role"], node["end"], node["replicas"][0]["lag_bytes"]) == ("master", 100, 30)
    assert worst(judge([node])) == 0
    connection["inSync"] = False
    assert worst(judge([{**node, **from_rocketmq5(body)}])) == 3


def test_a_slave_of_rocketmq_says_whom_it_follows() -> None:
    node = from_rocketmq5({"master": False, "haClientRuntimeInfo": {"masterAddr": "10.0.0.1:10912", "maxOffset": 9}})
    assert (node["role"], node["master"], node["end"], node["replicas"]) == ("slave", "10.0.0.1:10912", 9, [])
