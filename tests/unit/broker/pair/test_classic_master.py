"""What is asked of a RocketMQ master over its broker port, and what its answers are taken for."""

import asyncio
import json

import pytest

from tandemq.broker.pair.classic_master import ClassicMaster, hinders_promotion
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import RemotingError
from tandemq.formats.record import encode_record
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.decisions import LogEnds
from tandemq.replication.first_copy import CopyProgress, MasterLog
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.slave import MasterPlace
from tandemq.replication.slave_state import SlaveState

RECORD = encode_record(
    topic="t", queue_id=0, queue_offset=0, physical_offset=0, born_timestamp=1, born_host=bytes(8), store_timestamp=1,
    store_host=bytes(8), body=b"hello",
)  # fmt: skip
RANGE = {"commitLogMinOffset": "4096", "commitLogMaxOffset": "9000"}


class Master:
    """Answers as RocketMQ does; a code without an answer is refused."""

    def __init__(self, answers: dict[int, bytes | None]) -> None:
        self._answers = answers

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        body = self._answers.get(command.code, b"")
        if body is None:
            raise RemotingError(f"{address} does not answer")
        code = ResponseCode.SUCCESS if body else ResponseCode.NO_PERMISSION
        return Command(code, {}, body)


def master(answers: dict[int, bytes | None]) -> ClassicMaster:
    return ClassicMaster(Master(answers))  # type: ignore[arg-type]


def runtime(table: object) -> bytes:
    return json.dumps({"table": table}).encode()


def test_the_range_of_the_log_and_the_size_of_its_files() -> None:
    asked = master(
        {
            RequestCode.GET_BROKER_RUNTIME_INFO: runtime(RANGE),
            RequestCode.GET_BROKER_CONFIG: b"brokerName=a\nmappedFileSizeCommitLog=4096\n",
        }
    )
    assert asyncio.run(asked.log_of("m:1")) == MasterLog(4096, 9000, 4096)


def test_a_master_that_hides_its_configuration_still_tells_the_range() -> None:
    asked = master({RequestCode.GET_BROKER_RUNTIME_INFO: runtime(RANGE)})
    assert asyncio.run(asked.log_of("m:1")) == MasterLog(4096, 9000, 0)


@pytest.mark.parametrize(
    "answer", [None, b"", b"no json", runtime([]), runtime({}), runtime({**RANGE, "commitLogMinOffset": "x"})]
)
def test_an_answer_without_a_range_is_an_error_of_the_network(answer: bytes | None) -> None:
    with pytest.raises(OSError, match=r"."):
        asyncio.run(master({RequestCode.GET_BROKER_RUNTIME_INFO: answer}).log_of("m:1"))


def test_the_first_record_is_taken_only_if_it_is_one() -> None:
    assert asyncio.run(master({RequestCode.VIEW_MESSAGE_BY_ID: RECORD}).first_record("m:1")) == RECORD
    with pytest.raises(OSError, match="is none"):
        asyncio.run(master({RequestCode.VIEW_MESSAGE_BY_ID: RECORD[:-1]}).first_record("m:1"))


class Slave:
    """What is asked of a slave's shell before a promotion."""

    def __init__(self, end: int) -> None:
        self.state = ClassicSlaveState(log=LogEnds(0, end, end, 4096), terms=SlaveTerms("g"), now=0.0)
        self.progress = CopyProgress()
        self.progress.begins(self.state.log, MasterLog(0, 9000), last_file_only=False)
        self.place = MasterPlace("m:2", False, address="m:1")


@pytest.mark.parametrize(
    ("end", "answer", "why"),
    [
        (400, None, "up to 400, and that one ended at 9000"),
        (9000, runtime(RANGE), "still runs"),
        (9000, None, ""),
    ],
    ids=["in the middle of its copy", "beside a living master", "after it"],
)
def test_a_slave_of_a_rocketmq_master_reigns_after_it_and_with_all_it_had(
    end: int, answer: bytes | None, why: str
) -> None:
    survey = master({RequestCode.GET_BROKER_RUNTIME_INFO: answer})
    told = asyncio.run(hinders_promotion(Slave(end), survey, end, 0))  # type: ignore[arg-type]
    assert why in told
    assert bool(told) is bool(why)


def test_a_copy_that_is_not_whole_is_remembered_when_its_master_is_gone() -> None:
    """After a restart no session says that this was a slave of RocketMQ, and none may come any more."""

    class Silent(Slave):
        def __init__(self) -> None:
            self.state = object.__new__(SlaveState)  # type: ignore[assignment]
            self.progress = CopyProgress()
            self.place = None  # type: ignore[assignment]

    for slave in (Silent(), None):
        told = asyncio.run(hinders_promotion(slave, master({}), 400, 9000))  # type: ignore[arg-type]
        assert "up to 400, and that one ended at 9000" in told
        assert asyncio.run(hinders_promotion(slave, master({}), 9000, 9000)) == ""  # type: ignore[arg-type]
