"""Before a slave is made the master the page says what will happen, and what speaks against it."""

import pytest

from tandemq.console.picture import Group, Report, draw_group
from tandemq.console.switch_plan import plan_switch, told
from tandemq.errors import ClientError


def group(*, master_answers: bool = True, in_sync: bool = True, kind: str = "TandemQ") -> Group:
    replica = {"address": "s:1", "state": "in sync" if in_sync else "catching up", "in_sync": in_sync,
               "lag_bytes": 0 if in_sync else 4096, "protocol": "extended"}  # fmt: skip
    master = {"role": "master", "brokerRole": "ASYNC_MASTER", "epoch": 3, "end": 9000, "replicas": [replica]}
    slave = {"role": "slave", "brokerRole": "SLAVE", "epoch": 3, "end": 9000, "phase": "following"}
    reports = [
        Report(group="a", broker_id=0, address="m:1", kind=kind, detail=master, heard_ms=1, answers=master_answers),
        Report(group="a", broker_id=1, address="s:1", kind=kind, detail=slave, heard_ms=1),
    ]
    return draw_group("a", reports, 2)


def test_a_master_that_runs_hands_over() -> None:
    plan = plan_switch(group(), "s:1")
    assert "m:1 takes no more messages" in plan.steps[0]
    assert "s:1 becomes the master in epoch 4" in plan.steps[1]
    assert (plan.role, plan.warnings) == ("ASYNC_MASTER", ())


def test_a_master_that_is_gone_is_not_asked() -> None:
    plan = plan_switch(group(master_answers=False), "s:1")
    assert "does not answer and hands nothing over" in plan.steps[0]


def test_a_slave_that_is_behind_is_warned_of() -> None:
    (warning,) = plan_switch(group(in_sync=False), "s:1").warnings
    assert "catching up, 4\u00a0KiB behind" in warning.text


@pytest.mark.parametrize(
    ("address", "kind", "why"),
    [("x:1", "TandemQ", "no member"), ("m:1", "TandemQ", "already"), ("s:1", "RocketMQ 5", "can't be told")],
)
def test_what_can_not_be_switched_is_refused_with_the_reason(address: str, kind: str, why: str) -> None:
    with pytest.raises(ClientError, match=why):
        plan_switch(group(kind=kind), address)


def test_who_does_not_answer_is_no_successor() -> None:
    with pytest.raises(ClientError, match="start it first"):
        plan_switch(group(master_answers=False), "m:1")


def test_before_and_after_name_master_and_epoch() -> None:
    assert told(group()) == "master m:1, epoch 3"
    assert told(group(master_answers=False)) == "no master, epoch 3"
    assert told(None) == "not known"
