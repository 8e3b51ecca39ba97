"""The master's machine by itself: copies of RocketMQ's slaves and the register."""

from collections import deque
from collections.abc import Iterable

import pytest
from tests.unit.replication.waiters import TellingQueue

from tandemq.codec.ha_classic import encode_report
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue, Complete, PutStatus
from tandemq.replication.decisions import Decision, LogEnds, Prepare, Save
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import MasterTerms, Phase


class Machine:
    """A master that opened alone, with a disk that saves at once."""

    def __init__(self, level: int) -> None:
        self.acks = AckQueue()
        self.saved: list[ReplicaRecord] = []
        self.state = MasterState(
            record=ReplicaRecord("a:1#1", blind_from=0),
            terms=MasterTerms(group="g", level=AckLevel(level)),
            log=LogEnds(0, 0, 0, 1 << 20),
            acks=self.acks,
            new_id=lambda: "id",
            now=0.0,
        )
        self.act(self.state.start(0.0))

    def act(self, decisions: Iterable[Decision]) -> None:
        todo = deque(decisions)
        while todo:
            decision = todo.popleft()
            if isinstance(decision, Complete):
                self.acks.tell(decision)
            elif isinstance(decision, Prepare):
                todo.extend(self.state.prepared(self.state.log.end, 0.0))
            elif isinstance(decision, Save):
                self.saved.append(decision.record)
                todo.extend(self.state.saved(decision.record, 0.0))

    def append(self, size: int) -> list[PutStatus]:
        end, told = self.state.log.end + size, list[PutStatus]()
        self.act(self.state.appended(end))
        TellingQueue(self.acks).add(end, self.state.terms.level, False, 9.0, lambda status, reason: told.append(status))
        return told

    def report(self, offset: int) -> None:
        self.act(self.state.receive(1, encode_report(offset), 0.0))


def test_a_new_group_has_its_register_on_disk_when_it_opens() -> None:
    machine = Machine(1)
    assert machine.state.phase is Phase.OPEN
    register = machine.saved[-1].register
    assert register is not None
    assert (register.holder, register.in_sync, register.size) == ("a:1#1", ("a:1#1",), 1)


@pytest.mark.parametrize("level", [1, 2])
def test_a_rocketmq_slave_counts_where_more_copies_are_asked_than_there_are_members(level: int) -> None:
    machine = Machine(level)
    machine.act(machine.state.connected(1, "10.0.0.9:5", 0.0))
    machine.report(0)
    told = machine.append(100)
    machine.state.streaming.sent(1, 100, 0.0)
    machine.report(100)
    register = machine.state.register
    assert register is not None
    assert told == [PutStatus.PUT_OK]
    assert (register.classic_from >= 0) == (level == 2), "the register says since where their copies were counted"
    assert machine.saved[-1].register == register, "on disk"


def test_a_rocketmq_slaves_first_report_is_no_copy_of_what_was_not_sent_to_it() -> None:
    machine = Machine(2)
    told = machine.append(100)
    assert told == [PutStatus.SLAVE_NOT_AVAILABLE]
    waits: list[PutStatus] = []
    TellingQueue(machine.acks).acked("b:1#1", 50, 50)
    TellingQueue(machine.acks).add(100, AckLevel(2), False, 9.0, lambda status, reason: waits.append(status))
    machine.act(machine.state.connected(1, "10.0.0.9:5", 0.0))
    machine.report(100)
    assert waits == [], "it says that it has them, and was never seen to receive them"


def test_a_rocketmq_slave_that_reports_more_than_it_was_sent_is_not_believed() -> None:
    machine = Machine(2)
    machine.act(machine.state.connected(1, "10.0.0.9:5", 0.0))
    machine.report(0)
    machine.append(100)
    waits: list[PutStatus] = []
    TellingQueue(machine.acks).add(100, AckLevel(2), False, 9.0, lambda status, reason: waits.append(status))
    machine.report(100)
    assert PutStatus.PUT_OK not in waits
    assert not machine.state.sessions, "nothing was sent on this session yet"
