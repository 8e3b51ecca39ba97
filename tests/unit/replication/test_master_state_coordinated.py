"""The master's machine with a coordinator: nothing counts before etcd has it, and nothing without the lease."""

from collections import deque
from collections.abc import Iterable

import msgspec

from tandemq.codec.ha_register import Member, Register
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue, Complete
from tandemq.replication.decisions import Close, Decision, LogEnds, Note, Prepare, Propose, Save, Send
from tandemq.replication.epochs import History, Promise, ReplicaRecord
from tandemq.replication.fence import Fence
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import MasterTerms, Phase
from tandemq.replication.session import SessionState
from tandemq.replication.slave_state import SlaveState

A, B, C = "a:1#1", "b:1#1", "c:1#1"
HOME = "etcd:77"
REGISTER = Register(
    group_id="g",
    home=HOME,
    epoch=3,
    epoch_id="e3",
    holder=C,
    revision=7,
    members=(Member(A, "a:1", 1), Member(B, "b:1", 2), Member(C, "c:1", 3)),
    in_sync=(A, B, C),
)
HISTORY = History().opened(3, "e3", 0)


class Machine:
    """A candidate, the slaves that it hears, and an etcd that answers when the test says so."""

    def __init__(self, register: Register | None = None, *, replica: str = A) -> None:
        self.now = 0.0
        self.acks = AckQueue(now=lambda: self.now)
        self.acks.fence = self.fence = Fence(lambda: self.now)
        self.fence.renewed(0.0, 1000.0)
        self.saved: list[ReplicaRecord] = []
        self.proposals: list[Propose] = []
        self.notes: list[str] = []
        record = ReplicaRecord(replica, blind_from=0)
        if register is not None:
            record = ReplicaRecord(replica, history=HISTORY, promise=Promise(3, "e3"), register=register)
        ids = iter(f"id{number}" for number in range(1000))
        self.state = MasterState(
            record=record,
            terms=MasterTerms(group="g", level=AckLevel(2), home=HOME, address="a:1", away_max=1.0),
            log=LogEnds(0, 0, 0, 1 << 20),
            acks=self.acks,
            new_id=lambda: next(ids),
            now=0.0,
            register=register,
        )
        self.slaves: dict[int, SlaveState] = {}
        self.act(self.state.start(0.0))

    def act(self, decisions: Iterable[Decision]) -> None:
        todo = deque(decisions)
        while todo:
            decision = todo.popleft()
            if isinstance(decision, Complete):
                self.acks.tell(decision)
            elif isinstance(decision, Prepare):
                todo.extend(self.state.prepared(self.state.log.end, self.now))
            elif isinstance(decision, Save):
                self.saved.append(decision.record)
                todo.extend(self.state.saved(decision.record, self.now))
            elif isinstance(decision, Propose):
                self.proposals.append(decision)
            elif isinstance(decision, Note):
                self.notes.append(decision.event)
            elif isinstance(decision, Send) and decision.session in self.slaves:
                self._told(self.slaves[decision.session], decision.session, decision.data)
            elif isinstance(decision, Close):
                self.slaves.pop(decision.session, None)

    def _told(self, slave: SlaveState, session: int, data: bytes) -> None:
        for decision in slave.receive(data, self.now):
            if isinstance(decision, Send):
                self.act(self.state.receive(session, decision.data, self.now))

    def connect(self, session: int, replica: str, register: Register | None = None) -> SlaveState:
        """A slave with the same empty log comes."""
        promise = Promise(3, "e3") if register is not None else Promise()
        history = HISTORY if register is not None else History()
        slave = SlaveState(
            record=ReplicaRecord(replica, history=history, promise=promise, register=register),
            terms=SlaveTerms(group="g", address=replica.partition("#")[0]),
            log=LogEnds(0, 0, 0, 1 << 20),
            new_id=lambda: f"nonce{session}",
            now=self.now,
        )
        self.slaves[session] = slave
        self.act(self.state.connected(session, f"10.0.0.9:{session}", self.now))
        for decision in slave.connected(session, self.now):
            assert isinstance(decision, Send)
            self.act(self.state.receive(session, decision.data, self.now))
        return slave

    def etcd_answers(self) -> Register:
        """etcd has carried out the last proposal."""
        new = self.proposals[-1].new
        self.act(self.state.swapped(new, self.now))
        return new

    def is_in_sync(self, replica: str) -> bool:
        return any(s.replica == replica and s.state is SessionState.IN_SYNC for s in self.state.sessions.values())


def test_a_new_group_opens_when_etcd_has_its_register_and_not_before() -> None:
    machine = Machine()
    assert machine.state.phase is Phase.SWAPPING
    (proposal,) = machine.proposals
    assert proposal.expected is None
    assert (proposal.new.home, proposal.new.holder) == (HOME, A)
    machine.etcd_answers()
    assert machine.state.phase is Phase.OPEN
    assert machine.saved[-1].register == proposal.new


def test_from_the_proposal_on_the_promise_can_not_be_taken_back() -> None:
    """The swap may happen although nobody tells: a slave made of this record must not serve the older epoch."""
    machine = Machine()
    assert machine.saved[-1].before is None
    assert machine.saved[-1].withdrawn().promise.number == machine.proposals[0].new.epoch


def test_who_loses_the_swap_steps_down() -> None:
    machine = Machine()
    other = msgspec.structs.replace(machine.proposals[0].new, holder=B, epoch_id="other")
    machine.act(machine.state.learned(other, 0.0))
    assert machine.state.phase is Phase.DEPOSED
    machine.act(machine.state.swapped(machine.proposals[0].new, 0.0))
    assert machine.state.phase is Phase.DEPOSED


def test_a_candidate_hears_every_in_sync_replica_but_the_holder() -> None:
    machine = Machine(REGISTER)
    assert machine.state.phase is Phase.ASKING
    assert machine.state.waiting_for == {B}
    machine.connect(1, B, REGISTER)
    assert machine.state.phase is Phase.SWAPPING
    (proposal,) = machine.proposals
    assert proposal.expected == REGISTER
    assert (proposal.new.holder, proposal.new.in_sync) == (A, (A, B))
    assert proposal.new.epoch > REGISTER.epoch
    machine.etcd_answers()
    assert machine.state.phase is Phase.OPEN


def test_a_register_that_changed_since_it_was_read_is_judged_anew() -> None:
    """The old master took C out and D in while this candidate asked: D must be heard now."""
    machine = Machine(REGISTER)
    machine.connect(1, B, REGISTER)
    grown = msgspec.structs.replace(
        REGISTER, revision=8, members=(*REGISTER.members, Member("d:1#1", "d:1", 4)), in_sync=(A, B, C, "d:1#1")
    )
    machine.act(machine.state.learned(grown, 0.0))
    assert machine.state.phase is Phase.ASKING
    assert machine.state.waiting_for == {"d:1#1"}
    machine.act(machine.state.swapped(machine.proposals[0].new, 0.0))  # an answer that comes too late
    assert machine.state.phase is Phase.ASKING


def test_a_lost_session_does_not_undo_what_was_heard() -> None:
    machine = Machine(REGISTER)
    machine.connect(1, B, REGISTER)
    machine.act(machine.state.disconnected(1, 0.0))
    assert machine.state.phase is Phase.SWAPPING
    machine.etcd_answers()
    assert machine.state.phase is Phase.OPEN


def test_one_that_is_not_in_sync_needs_everybody_in_sync_the_holder_included() -> None:
    machine = Machine(msgspec.structs.replace(REGISTER, in_sync=(B, C)))
    assert machine.state.waiting_for == {B, C}


def opened_with_b() -> Machine:
    machine = Machine()
    machine.etcd_answers()
    machine.connect(1, B)
    return machine


def test_a_newcomer_counts_when_etcd_has_it_as_a_member_in_sync() -> None:
    machine = opened_with_b()
    assert [p.new.joining_ids for p in machine.proposals[1:]] == [{B}]
    joins = machine.etcd_answers()
    assert joins.joining_ids == {B}
    assert not machine.is_in_sync(B)
    assert machine.proposals[-1].new.in_sync == (A, B)
    assert not machine.is_in_sync(B)
    machine.etcd_answers()
    assert machine.is_in_sync(B)


def test_one_proposal_at_a_time() -> None:
    machine = opened_with_b()
    count = len(machine.proposals)
    machine.act(machine.state.tick(5.0))
    assert len(machine.proposals) == count
    machine.etcd_answers()  # it joins; now it is about to become a member
    refusal, decisions = machine.state.forget(B, 5.0)
    machine.act(decisions)
    assert "has not answered" in refusal


def in_sync_machine() -> Machine:
    machine = opened_with_b()
    machine.etcd_answers()
    machine.etcd_answers()
    assert machine.is_in_sync(B)
    return machine


def test_a_silent_replica_leaves_and_does_not_count_while_etcd_is_asked() -> None:
    machine = in_sync_machine()
    machine.act(machine.state.disconnected(1, 0.0))
    machine.now = 1.5
    machine.act(machine.state.tick(1.5))
    assert machine.proposals[-1].new.in_sync == (A,)
    machine.connect(2, B, machine.state.register)
    assert not machine.is_in_sync(B), "etcd may have taken it out already"
    machine.etcd_answers()
    assert machine.proposals[-1].new.in_sync == (A, B)
    machine.etcd_answers()
    assert machine.is_in_sync(B)


def test_without_the_lease_nothing_is_proposed_or_confirmed() -> None:
    machine = in_sync_machine()
    count = len(machine.proposals)
    machine.fence.close()
    machine.act(machine.state.disconnected(1, 0.0))
    machine.act(machine.state.tick(50.0))
    assert len(machine.proposals) == count
    machine.act(machine.state.appended(100))
    machine.act(machine.state.flushed(100))
    assert machine.state.confirmed == 0


def test_a_clean_stop_does_not_say_that_nobody_else_was_in_sync() -> None:
    """Others are elected by it: the set stays as etcd has it."""
    machine = in_sync_machine()
    count = len(machine.proposals)
    machine.act(machine.state.stop(0.0))
    assert len(machine.proposals) == count
    register = machine.saved[-1].register
    assert register is not None
    assert register.in_sync == (A, B)


def test_a_pause_by_another_node_is_taken_over() -> None:
    machine = in_sync_machine()
    register = machine.state.register
    assert register is not None
    paused = msgspec.structs.replace(register, revision=register.revision + 1, paused=True)
    machine.act(machine.state.learned(paused, 0.0))
    assert machine.state.phase is Phase.OPEN
    assert machine.saved[-1].register == paused


def test_a_newer_reign_in_etcd_ends_this_one() -> None:
    machine = in_sync_machine()
    register = machine.state.register
    assert register is not None
    newer = msgspec.structs.replace(register, epoch=register.epoch + 1, holder=B, revision=register.revision + 1)
    machine.act(machine.state.learned(newer, 0.0))
    assert machine.state.phase is Phase.DEPOSED
