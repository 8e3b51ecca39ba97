"""A slave's machine by itself, fed with what a master would say."""

from collections.abc import Iterable

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_register import Member, Register
from tandemq.codec.ha_session import Challenge, EpochItem, Welcome
from tandemq.replication.decisions import Decision, LogEnds, Send
from tandemq.replication.epochs import History, Promise, ReplicaRecord, from_items
from tandemq.replication.following.core import SlavePhase, SlaveTerms
from tandemq.replication.slave_state import SlaveState

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


def following() -> Slave:
    slave = Slave()
    slave.challenge(4, "e4")
    slave.welcome(1000, EpochItem(1, "e1", 0), EpochItem(3, "e3", 400), EpochItem(4, "e4", 1000))
    assert slave.state.phase is SlavePhase.FOLLOWING
    assert slave.state.record.history != History()
    return slave
