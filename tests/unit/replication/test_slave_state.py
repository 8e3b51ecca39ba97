"""The slave's machine by itself: what it promises, stores, cuts and acknowledges, and in which order."""

from collections.abc import Iterable

import msgspec
import pytest

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_register import Member, Register
from tandemq.codec.ha_session import Challenge, EpochItem, Hello, NewRegister, Registered, Start, Welcome
from tandemq.replication.decisions import Append, Close, Confirm, Decision, LogEnds, Save, Send, Truncate
from tandemq.replication.epochs import History, Promise, ReplicaRecord, from_items
from tandemq.replication.slave_state import SlavePhase, SlaveState, SlaveTerms

A, B, C = "a:1#1", "b:1#1", "c:1#1"
REGISTER = Register(
    group_id="g", epoch=3, epoch_id="e3", holder=A, revision=5, members=(Member(A), Member(B, "", 1)), in_sync=(A, B)
)


class Slave:
    """Replica B, with 1000 bytes of epoch 3, of which 600 are on disk."""

    def __init__(self, record: ReplicaRecord | None = None) -> None:
        history = from_items([EpochItem(1, "e1", 0), EpochItem(3, "e3", 400)])
        self.state = SlaveState(
            record=record or ReplicaRecord(B, history=history, promise=Promise(3, "e3"), register=REGISTER, follows=A),
            terms=SlaveTerms(group="g"),
            log=LogEnds(0, 1000, 600, 1 << 20),
            new_id=lambda: "nonce",
            now=0.0,
        )
        self.state.connected(1, 0.0)

    def challenge(
        self, number: int, epoch_id: str, replica: str = A, register: Register | None = REGISTER
    ) -> list[Decision]:
        proof = ha.key_proof("", "master", "nonce", "theirs", "g")
        return self.feed(Challenge(ha.VERSION, "theirs", proof, number, epoch_id, replica, register))

    def welcome(
        self, end: int, *history: EpochItem, number: int = 4, register: Register | None = None
    ) -> list[Decision]:
        return self.feed(
            Welcome(A, True, number, f"e{number}", 0, end, 0, list(history), [B], [B], register=register or None)
        )

    def feed(self, message: ha.Control) -> list[Decision]:
        return self.state.receive(ha.encode_control(message), 0.0)

    def data(self, offset: int, size: int, *, epoch: int = 4, confirmed: int = 0, damage: int = 0) -> list[Decision]:
        body = bytes(size)
        frame = bytearray(ha.encode_data_header(epoch, offset, confirmed, body) + body)
        frame[-1] ^= damage
        return self.state.receive(bytes(frame), 0.0)


def sent(decisions: Iterable[Decision]) -> list[ha.Event]:
    reader = ha.SessionReader()
    return [event for one in decisions if isinstance(one, Send) for event in reader.feed(one.data)]


def kinds(decisions: Iterable[Decision], *wanted: type) -> list[type]:
    found = []
    for one in decisions:
        name = type(sent([one])[0]) if isinstance(one, Send) else type(one)
        if name in wanted:
            found.append(name)
    return found


def test_a_promise_is_saved_before_the_hello_that_speaks_of_it() -> None:
    out = Slave().challenge(4, "e4")
    assert kinds(out, Save, Hello) == [Save, Hello]
    saved = next(one for one in out if isinstance(one, Save))
    assert saved.record.promise == Promise(4, "e4")
    (hello,) = sent(out)
    assert isinstance(hello, Hello)
    assert (hello.promised_number, hello.promised_id) == (4, "e4")


@pytest.mark.parametrize(("number", "epoch_id"), [(3, "another"), (2, "e2")])
def test_no_promise_for_an_older_epoch_nor_another_of_the_same_number(number: int, epoch_id: str) -> None:
    out = Slave().challenge(number, epoch_id)
    assert kinds(out, Save) == []
    (hello,) = sent(out)
    assert isinstance(hello, Hello)
    assert (hello.promised_number, hello.promised_id) == (3, "e3"), "its hello says what it has promised"


def test_nothing_is_promised_to_one_that_the_register_does_not_name_or_of_another_group() -> None:
    for replica, register in ((C, REGISTER), (A, msgspec.structs.replace(REGISTER, group_id="other"))):
        out = Slave().challenge(9, "e9", replica, register)
        (hello,) = sent(out)
        assert isinstance(hello, Hello)
        assert hello.refused
        assert (hello.promised_number, kinds(out, Save)) == (3, [])


def test_a_register_is_stored_only_under_the_epoch_promised_and_answered_when_it_is_on_disk() -> None:
    slave = Slave()
    slave.challenge(4, "e4")
    stranger = msgspec.structs.replace(REGISTER, epoch=5, epoch_id="e5", revision=6)
    assert kinds(slave.feed(NewRegister(stranger)), Save, Registered) == []
    assert slave.state.record.register == REGISTER
    mine = msgspec.structs.replace(REGISTER, epoch=4, epoch_id="e4", revision=6)
    assert kinds(slave.feed(NewRegister(mine)), Save, Registered) == [Save, Registered]
    assert slave.state.record.register == mine
    older = msgspec.structs.replace(mine, revision=4)
    slave.feed(NewRegister(older))
    assert slave.state.record.register == mine, "never an older one"


def test_the_log_is_cut_before_the_masters_history_is_adopted() -> None:
    slave = Slave()
    slave.challenge(4, "e4")
    out = slave.welcome(800, EpochItem(1, "e1", 0), EpochItem(4, "e4", 700))
    assert kinds(out, Truncate, Save, Start) == [Truncate, Save, Start]
    cut = next(one for one in out if isinstance(one, Truncate))
    assert (cut.offset, cut.end) == (400, 1000), "epoch 3 is not in the master's log"
    assert slave.state.log.end == 400


def test_one_whose_machine_crashed_is_complete_only_when_it_has_caught_up() -> None:
    history = from_items([EpochItem(3, "e3", 0)])
    crashed = ReplicaRecord(
        B, history=history, promise=Promise(3, "e3"), register=REGISTER, follows=A, complete=True
    ).after_machine_crash()
    assert not crashed.complete
    slave = Slave(crashed)
    slave.challenge(4, "e4")
    register = msgspec.structs.replace(REGISTER, epoch=4, epoch_id="e4", revision=6)
    slave.welcome(1200, EpochItem(3, "e3", 0), EpochItem(4, "e4", 1200), register=register)
    assert not slave.state.record.complete, "200 bytes are missing still"
    slave.data(1000, 200)
    assert slave.state.record.complete


def test_an_ack_follows_the_bytes_and_says_durable_only_of_what_was_flushed() -> None:
    slave = following()
    out = slave.data(1000, 100)
    assert kinds(out, Append, ha.Ack) == [Append, ha.Ack]
    (ack,) = sent(out)
    assert isinstance(ack, ha.Ack)
    assert (ack.epoch, ack.received, ack.durable) == (4, 1100, 600)
    (flushed,) = sent(slave.state.flushed(1050, 0.0))
    assert isinstance(flushed, ha.Ack)
    assert (flushed.received, flushed.durable) == (1100, 1050)


def test_damaged_bytes_are_not_appended_and_end_the_session() -> None:
    slave = following()
    out = slave.data(1000, 100, damage=1)
    assert kinds(out, Append, Close) == [Close]
    assert slave.state.phase is SlavePhase.IDLE


def test_readers_are_shown_what_the_master_has_confirmed_and_no_more() -> None:
    slave = following()
    out = slave.data(1000, 100, confirmed=1040)
    assert [one.offset for one in out if isinstance(one, Confirm)] == [1040]


def following() -> Slave:
    slave = Slave()
    slave.challenge(4, "e4")
    slave.welcome(1000, EpochItem(1, "e1", 0), EpochItem(3, "e3", 400), EpochItem(4, "e4", 1000))
    assert slave.state.phase is SlavePhase.FOLLOWING
    assert slave.state.record.history != History()
    return slave
