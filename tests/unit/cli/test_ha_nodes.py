"""RocketMQ 5's answer in our words; what ours answer is tested against real brokers in tests/cli/test_ha.py."""

from tandemq.cli.ha_nodes import from_rocketmq5
from tandemq.cli.ha_view import judge, lines_of, worst


def test_a_slave_that_rocketmq_calls_behind_is_not_in_sync() -> None:
    connection = {"addr": "10.0.0.2:40000", "slaveAckOffset": 70, "diff": 30, "inSync": True}
    body = {"master": True, "masterCommitLogMaxOffset": 100, "haConnectionInfo": [connection]}
    node = {"broker": "b", "address": "10.0.0.1:10911", **from_rocketmq5(body)}
    assert (node["role"], node["end"], node["replicas"][0]["lag_bytes"]) == ("master", 100, 30)
    assert worst(judge([node])) == 0
    connection["inSync"] = False
    assert worst(judge([{**node, **from_rocketmq5(body)}])) == 3


def test_an_observer_beside_a_rocketmq_master_is_no_slave_that_is_behind() -> None:
    """It reports a place far below the log, so that no acknowledgement rests on it."""
    connection = {"addr": "10.0.0.2:40000", "slaveAckOffset": -(1 << 32), "diff": (1 << 32) + 100, "inSync": False}
    body = {"master": True, "masterCommitLogMaxOffset": 100, "haConnectionInfo": [connection]}
    groups = judge([{"broker": "b", "address": "10.0.0.1:10911", **from_rocketmq5(body)}])
    assert worst(groups) == 0
    (line,) = (line for line in lines_of(groups, 120) if line.startswith("10.0.0.2"))
    assert line.split() == ["10.0.0.2:40000", "observing", "classic", "0", "0", "0", "0.0"]


def test_a_slave_of_rocketmq_says_whom_it_follows() -> None:
    node = from_rocketmq5({"master": False, "haClientRuntimeInfo": {"masterAddr": "10.0.0.1:10912", "maxOffset": 9}})
    assert (node["role"], node["master"], node["end"], node["replicas"]) == ("slave", "10.0.0.1:10912", 9, [])
