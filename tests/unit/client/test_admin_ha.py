"""What each kind of broker tells of its replication."""

import asyncio
import json
from typing import Any

import pytest

from tandemq.client.admin_ha import ROCKETMQ_4, ROCKETMQ_5, TANDEMQ, HaAdmin
from tandemq.codec.codes import OperatorCode, RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.replication.metadata import PairCode

UNKNOWN = Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, {}, remark="no")


class Answers:
    """A session whose broker answers by code."""

    def __init__(self, **answers: Command) -> None:
        self._answers = {int(code.removeprefix("c")): answer for code, answer in answers.items()}

    async def invoke(self, address: str, code: int, ext: Any, body: bytes = b"", *, timeout_ms: int = 0) -> Command:
        return self._answers.get(code, UNKNOWN)


def ask(**answers: Command) -> dict[str, Any]:
    admin = HaAdmin.__new__(HaAdmin)
    session: Any = Answers(**answers)
    admin.session = session
    return asyncio.run(admin.ha_detail("h:1"))


def body(found: Any) -> Command:
    return Command(ResponseCode.SUCCESS, {}, json.dumps(found).encode())


def test_the_code_is_the_one_our_brokers_answer() -> None:
    assert OperatorCode.HA_DETAIL == PairCode.HA_DETAIL


def test_ours_tell_everything() -> None:
    assert ask(c32105=body({"epoch": 3})) == {"epoch": 3, "kind": TANDEMQ}


def test_rocketmq_5_tells_what_its_request_has() -> None:
    link = {"addr": "/10.0.0.2:5", "inSync": True, "slaveAckOffset": 90, "diff": 10, "transferredByteInSecond": 7}
    found = ask(c907=body({"master": True, "masterCommitLogMaxOffset": 100, "haConnectionInfo": [link]}))
    assert (found["kind"], found["role"], found["end"]) == (ROCKETMQ_5, "master", 100)
    assert found["replicas"][0]["received"] == 90
    assert "durable" not in found["replicas"][0], "what it does not tell is not there"
    assert RequestCode.GET_BROKER_HA_STATUS == 907


def test_an_observer_of_ours_beside_rocketmq_is_shown_as_one() -> None:
    link = {"addr": "/10.0.0.2:5", "inSync": False, "slaveAckOffset": -(1 << 32), "diff": (1 << 32) + 100}
    found = ask(c907=body({"master": True, "masterCommitLogMaxOffset": 100, "haConnectionInfo": [link]}))
    (replica,) = found["replicas"]
    assert (replica["state"], replica["received"], replica["lag_bytes"]) == ("observing", 0, 0)


def test_rocketmq_4_tells_nothing() -> None:
    assert ask() == {"kind": ROCKETMQ_4, "replicas": []}


def test_a_refusal_is_no_old_broker() -> None:
    with pytest.raises(ReplyError):
        ask(c32105=Command(ResponseCode.NO_PERMISSION, {}, remark="access refused"))
