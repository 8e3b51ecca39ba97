"""A master's machine with a disk that saves at once, and the replicas that greet it."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from tests.unit.replication.waiters import TellingQueue

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_register import Member, Register
from tandemq.codec.ha_session import Challenge, EpochItem, Hello, Preamble, Registered, Start
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue, Complete, PutStatus
from tandemq.replication.decisions import Decision, LogEnds, Prepare, Save, Send
from tandemq.replication.epochs import Promise, ReplicaRecord, from_items
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import MasterTerms, Phase

Kind = TypeVar("Kind")

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
    observer: bool = False
    promised: Promise | None = None
    """What it has promised instead of what it is asked for."""


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
            elif isinstance(decision, Complete):
                self.acks.tell(decision)
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
                promised_number=peer.promised.number if peer.promised else challenge.number,
                promised_id=peer.promised.id if peer.promised else challenge.id,
                history=HISTORY if peer.end else [],
                members=[],
                registers=True,
                register=peer.register,
                clean=peer.clean,
                observer=peer.observer,
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

    def acked(self, session: int, received: int, durable: int | None = None) -> None:
        """Sends a session bytes up to `received`, which it acknowledges."""
        slave = self.state.sessions[session]
        self.state.streaming.sent(session, max(received, slave.sent), 0.0)
        ack = ha.encode_ack(self.state.number, received, received if durable is None else durable, received)
        self.act(self.state.receive(session, ack, 0.0))

    def append(self, end: int, level: AckLevel) -> list[PutStatus]:
        """Appends up to `end`; returns what a send of these bytes is told, when it is."""
        told: list[PutStatus] = []
        self.act(self.state.appended(end))
        TellingQueue(self.acks).add(end, level, False, 9.0, lambda status, reason: told.append(status))
        return told

    def told(self, kind: type[Kind]) -> list[Kind]:
        """Everything of one kind that was decided or sent, in order."""
        return [one for one in self.happened if isinstance(one, kind)]

    def last(self, kind: type[Kind]) -> Kind:
        return self.told(kind)[-1]

    def place(self, kind: type) -> int:
        return next(place for place, one in enumerate(self.happened) if isinstance(one, kind))

    @property
    def register(self) -> Register:
        register = self.state.record.register
        assert register is not None
        return register
