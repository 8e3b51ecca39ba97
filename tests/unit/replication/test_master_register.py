"""The master's machine by itself: how a reign begins, who comes in sync, and what ends it."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_register import Member, Register
from tandemq.codec.ha_session import Challenge, EpochItem, Hello, NewRegister, Preamble, Registered, Start
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue, PutStatus
from tandemq.replication.decisions import Close, Decision, LogEnds, Note, Opened, Prepare, Save, Send, SteppedDown
from tandemq.replication.epochs import Promise, ReplicaRecord, from_items, to_items
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import MasterTerms, Phase

A, B, C = "a:1#1", "b:1#1", "c:1#1"
REGISTER = Register(
    group_id="g", epoch=3, epoch_id="e3", holder=A, revision=5, members=(Member(A), Member(B, "", 1)), in_sync=(A, B)
)
HISTORY = [EpochItem(1, "e1", 0), EpochItem(3, "e3", 400)]


@dataclass
class Peer:
    """What a replica tells in its hello."""

    replica: str = B
    end: int = 1000
    durable: int = 1000
    register: Register | None = REGISTER
    clean: bool = True


class Master:
    """A with 1000 bytes, found reigning in epoch 3; its disk saves at once."""

    def __init__(
        self, record: ReplicaRecord | None = None, level: AckLevel | None = None, *, group_exists: bool = False
    ) -> None:
        self.acks = AckQueue()
        self.happened: list[Decision | ha.Event] = []
        self.state = MasterState(
            record=record
            or ReplicaRecord(
                A, history=from_items(HISTORY), promise=Promise(3, "e3"), register=REGISTER, reigning=True
            ),
            terms=MasterTerms(group="g", level=level or AckLevel(2)),
            log=LogEnds(0, 1000, 1000, 1 << 20),
            acks=self.acks,
            new_id=iter(f"id{number}" for number in range(1000)).__next__,
            now=0.0,
            group_exists=group_exists,
        )
        self.act(self.state.start(0.0))

    def act(self, decisions: Iterable[Decision]) -> None:
        todo = deque(decisions)
        while todo:
            decision = todo.popleft()
            self.happened.append(decision)
            if isinstance(decision, Send):
                self.happened += ha.SessionReader().feed(decision.data)
            elif isinstance(decision, Prepare):
                todo.extend(self.state.prepared(self.state.log.end, 0.0))
            elif isinstance(decision, Save):
                todo.extend(self.state.saved(decision.record, 0.0))

    def hear(self, peer: Peer, session: int = 1) -> None:
        """The whole greeting of a replica that promises what it is asked for."""
        self.act(self.state.connected(session, f"10.0.0.{session}:9", 0.0))
        self.tell(session, Preamble(ha.VERSION, "nonce"))
        challenge = self.last(Challenge)
        self.tell(
            session,
            Hello(
                group="g",
                replica=peer.replica,
                proof=ha.key_proof("", "slave", "nonce", challenge.nonce, peer.replica),
                address="",
                segment_size=1 << 20,
                first=0,
                end=peer.end,
                durable=peer.durable,
                promised_number=challenge.number,
                promised_id=challenge.id,
                history=HISTORY if peer.end else [],
                members=[],
                registers=True,
                register=peer.register,
                clean=peer.clean,
            ),
        )

    def opened(self) -> "Master":
        """With B heard and its register stored there."""
        self.hear(Peer())
        self.registered(1)
        assert self.state.phase is Phase.OPEN
        return self

    def registered(self, session: int) -> None:
        register = self.state.register
        assert register is not None
        self.tell(session, Registered(register.epoch, register.revision))

    def start_session(self, session: int, offset: int) -> None:
        self.tell(session, Start(self.state.number, offset, offset))

    def tell(self, session: int, message: ha.Control) -> None:
        self.act(self.state.receive(session, ha.encode_control(message), 0.0))

    def last(self, kind: type[Challenge]) -> Challenge:
        return next(one for one in reversed(self.happened) if isinstance(one, kind))

    def place(self, kind: type) -> int:
        return next(place for place, one in enumerate(self.happened) if isinstance(one, kind))

    @property
    def register(self) -> Register:
        register = self.state.record.register
        assert register is not None
        return register


def test_a_register_is_on_the_candidates_disk_before_anybody_is_sent_it_and_on_all_before_it_opens() -> None:
    master = Master()
    master.hear(Peer())
    assert master.state.phase is Phase.SWAPPING
    saves = [
        place
        for place, one in enumerate(master.happened)
        if isinstance(one, Save) and one.record.register is not None and one.record.register.epoch == 4
    ]
    assert saves, "the register of the new epoch was saved"
    assert saves[0] < master.place(NewRegister)
    master.registered(1)
    assert master.state.phase is Phase.OPEN
    assert master.place(NewRegister) < master.place(Opened)


def test_a_reign_begins_in_sync_with_those_who_hold_the_whole_log() -> None:
    behind = Master()
    behind.hear(Peer(end=900, durable=900))
    assert behind.register.in_sync == (A,)
    whole = Master()
    whole.hear(Peer())
    assert whole.register.in_sync == (A, B)
    undurable = Master(level=AckLevel(2, durable=True))
    undurable.hear(Peer(durable=900))
    assert undurable.register.in_sync == (A,), "durable levels are used"


def test_a_replica_enters_the_in_sync_set_only_with_all_that_was_acknowledged() -> None:
    master = Master()
    master.hear(Peer(end=900, durable=900))
    master.registered(1)
    master.start_session(1, 900)
    assert master.register.in_sync == (A,), "it has 900 of 1000 bytes"
    master.state.streaming.sent(1, 1000, 0.0)
    master.act(master.state.receive(1, ha.encode_ack(4, 1000, 1000, 0), 0.0))
    assert master.register.in_sync == (A, B)


def test_copies_of_a_new_member_count_when_every_member_knows_of_it() -> None:
    three = msgspec.structs.replace(REGISTER, members=(*REGISTER.members, Member(C, "", 2)), in_sync=(A, B))
    record = ReplicaRecord(A, history=from_items(HISTORY), promise=Promise(3, "e3"), register=three, reigning=True)
    master = Master(record)
    master.hear(Peer(register=three))
    master.registered(1)
    assert master.state.phase is Phase.OPEN
    assert master.acks.group_size == 3, "majority and all are of the members, absent ones too"


def test_a_second_session_of_one_identity_ends_the_first() -> None:
    master = Master().opened()
    master.hear(Peer(), session=2)
    assert list(master.state.sessions) == [2]
    assert any(isinstance(one, Close) and one.session == 1 for one in master.happened)


def test_an_open_master_that_meets_the_register_of_a_newer_epoch_steps_down() -> None:
    master = Master().opened()
    newer = msgspec.structs.replace(REGISTER, epoch=9, epoch_id="e9", holder=C, revision=9)
    master.hear(Peer(register=newer), session=2)
    assert master.state.phase is Phase.DEPOSED
    assert any(isinstance(one, SteppedDown) for one in master.happened)


def test_sends_that_wait_are_failed_when_the_reign_ends_and_no_ack_completes_them() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    told: list[PutStatus] = []
    master.act(master.state.appended(1100))
    master.acks.add(1100, AckLevel(2), False, 9.0, lambda status, reason: told.append(status))
    assert told == []
    master.act(master.state.order(0, "the operator demotes it", 0.0))
    assert told == [PutStatus.SERVICE_NOT_AVAILABLE]


def test_a_provisional_master_acknowledges_one_copy_only_and_nobody_follows_it() -> None:
    alone = msgspec.structs.replace(REGISTER, in_sync=(A,))
    record = ReplicaRecord(A, history=from_items(HISTORY), promise=Promise(3, "e3"), register=alone, reigning=True)
    master = Master(record, level=AckLevel(1))
    assert master.state.phase is Phase.OPEN
    assert master.state.provisional
    assert master.register.epoch == 3, "the register stays as it is"
    assert to_items(master.state.record.history)[-1].id.startswith("~")
    told: list[PutStatus] = []
    master.act(master.state.appended(1100))
    master.acks.add(1100, AckLevel(2), False, 9.0, lambda status, reason: told.append(status))
    assert told == [PutStatus.SLAVE_NOT_AVAILABLE]
    master.hear(Peer(register=alone))
    assert not master.state.provisional, "the other member is heard: it opens anew"
    assert any(isinstance(one, SteppedDown) for one in master.happened)


def test_a_replica_of_another_group_is_neither_heard_nor_served() -> None:
    master = Master()
    master.hear(Peer(register=msgspec.structs.replace(REGISTER, group_id="other")))
    assert master.state.phase is Phase.ASKING
    assert not master.state.sessions


def test_a_member_is_not_forgotten_while_its_disk_is_the_only_other_one_with_what_was_acknowledged() -> None:
    three = msgspec.structs.replace(REGISTER, members=(*REGISTER.members, Member(C, "", 2)), in_sync=(A, B, C))
    record = ReplicaRecord(A, history=from_items(HISTORY), promise=Promise(3, "e3"), register=three, reigning=True)
    master = Master(record)
    master.hear(Peer(register=three))
    master.hear(Peer(replica=C, register=three), session=2)
    master.registered(1)
    master.registered(2)
    assert master.state.phase is Phase.OPEN
    for session in (1, 2):
        master.start_session(session, 1000)
    master.act(master.state.appended(1100))
    for session, durable in ((1, 1100), (2, 1000)):
        master.state.streaming.sent(session, 1100, 0.0)
        master.act(master.state.receive(session, ha.encode_ack(4, 1100, durable, 0), 0.0))
    refusal, _ = master.state.forget(B, 0.0)
    assert "not everything acknowledged" in refusal
    master.act(master.state.receive(2, ha.encode_ack(4, 1100, 1100, 0), 0.0))
    refusal, decisions = master.state.forget(B, 0.0)
    assert refusal == ""
    master.act(decisions)
    assert master.register.member_ids == {A, C}
    assert master.acks.group_size == 3, "it counts until all who can be reached know that it is gone"


def test_a_new_store_where_a_group_was_begins_another_only_when_a_loss_is_accepted_and_nobody_has_the_register() -> (
    None
):
    master = Master(ReplicaRecord(A, blind_from=0), group_exists=True)
    assert master.state.phase is Phase.ASKING
    master.act(master.state.tick(60.0))
    assert any(isinstance(one, Note) and one.event == "read-only" for one in master.happened), "it says so"
    master.act(master.state.allow(60.0))
    master.act(master.state.tick(120.0))
    assert master.state.phase is Phase.ASKING, "somebody who answers has the register"
    master.act(master.state.allow(120.0, group_gone=True))
    assert master.state.phase is Phase.OPEN
    assert master.register.member_ids == {A}
