"""A master's and a slave's state machines with a wire between them that a test can hold, change and repeat.

The logs are bytes in memory; what a decision would do to a disk is noted. Nothing here waits for anything.
"""

from collections.abc import Iterable
from itertools import count

from tandemq.codec import ha_session as ha
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue
from tandemq.replication.decisions import (
    Append,
    Close,
    Decision,
    Discard,
    LogEnds,
    Prepare,
    Save,
    Send,
    SteppedDown,
    Truncate,
)
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import MasterTerms, Phase
from tandemq.replication.slave_state import SlaveState

SESSION = 1
SEGMENT = 1 << 16


class MasterEnd:
    """A master that is open, with a log of its own and what it decided."""

    def __init__(self, key: str, log: bytes = b"", **terms: object) -> None:
        numbers = count(1)
        self.log = bytearray(log)
        self.state = MasterState(
            record=ReplicaRecord("10.0.0.1:1#m"),
            terms=MasterTerms(group="g", level=AckLevel(2), shared_key=key, **terms),  # type: ignore[arg-type]
            log=LogEnds(0, len(log), len(log), SEGMENT),
            acks=AckQueue(),
            new_id=lambda: f"{next(numbers):016x}",
            now=0.0,
        )
        self.decisions: list[Decision] = []
        self.out: dict[int, list[bytes]] = {}
        self.act(self.state.start(0.0))
        assert self.state.phase is Phase.OPEN
        self.decisions.clear()

    def act(self, decisions: Iterable[Decision]) -> None:
        todo = list(decisions)
        while todo:
            decision = todo.pop(0)
            self.decisions.append(decision)
            if isinstance(decision, Send):
                self.out.setdefault(decision.session, []).append(decision.frame())
            elif isinstance(decision, Prepare):
                todo += self.state.prepared(len(self.log), 0.0)
            elif isinstance(decision, Save):
                todo += self.state.saved(decision.record, 0.0)

    def connect(self, session: int = SESSION, peer: str = "10.0.0.2:5000", now: float = 0.0) -> None:
        self.act(self.state.connected(session, peer, now))

    def hear(self, data: bytes, session: int = SESSION, now: float = 0.0) -> None:
        self.act(self.state.receive(session, data, now))

    def stream(self, session: int = SESSION) -> None:
        """Sends what the slave lacks, one frame after the other."""
        while (batch := self.state.streaming.next_batch(session, 0.0)) is not None:
            data = bytes(self.log[batch.offset : batch.offset + batch.size_max])
            packed = self.state.streaming.packed_frame(session, data)
            self.out[session].append(packed or self.state.streaming.frame_header(session, data) + data)
            self.state.streaming.sent(session, batch.offset + len(data), 0.0)

    def append(self, data: bytes) -> None:
        self.log += data
        self.act(self.state.appended(len(self.log)))

    def takes(self, session: int = SESSION) -> list[bytes]:
        """Returns the frames on their way, and takes them off the wire."""
        frames = self.out.get(session, [])
        self.out[session] = []
        return frames

    @property
    def changed(self) -> list[Decision]:
        """Returns what a stranger must not bring about."""
        return [one for one in self.decisions if isinstance(one, Save | SteppedDown | Append | Truncate)]

    @property
    def closed(self) -> list[Close]:
        return [one for one in self.decisions if isinstance(one, Close)]


class SlaveEnd:
    """A slave with a log of its own and what it decided."""

    def __init__(self, key: str, log: bytes = b"", record: ReplicaRecord | None = None, compression: str = "") -> None:
        numbers = count(1 << 60)
        self.log = bytearray(log)
        self.state = SlaveState(
            record=record or ReplicaRecord("10.0.0.2:1#s"),
            terms=SlaveTerms(group="g", shared_key=key, compression=compression),
            log=LogEnds(0, len(log), len(log), SEGMENT),
            new_id=lambda: f"{next(numbers):032x}",
            now=0.0,
        )
        self.decisions: list[Decision] = []
        self.out: list[bytes] = []

    def act(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self.decisions.append(decision)
            if isinstance(decision, Send):
                self.out.append(decision.frame())
            elif isinstance(decision, Append):
                self.log[decision.offset :] = bytes(decision.data)

    def connect(self) -> None:
        self.act(self.state.connected(SESSION, 0.0))

    def hear(self, data: bytes) -> None:
        self.act(self.state.receive(data, 0.0))

    def takes(self) -> list[bytes]:
        frames, self.out = self.out, []
        return frames

    @property
    def changed(self) -> list[Decision]:
        return [one for one in self.decisions if isinstance(one, Save | Append | Truncate | Discard)]

    @property
    def closed(self) -> list[Close]:
        return [one for one in self.decisions if isinstance(one, Close)]


def introduce(master: MasterEnd, slave: SlaveEnd, session: int = SESSION, peer: str = "10.0.0.2:5000") -> None:
    """Lets both talk until the slave follows and has everything."""
    master.connect(session, peer)
    slave.connect()
    talk(master, slave, session)
    assert slave.state.phase.value == "following", (slave.closed, master.closed)


def talk(master: MasterEnd, slave: SlaveEnd, session: int = SESSION) -> None:
    """Carries frames both ways until nobody has anything to say."""
    while True:
        said = slave.takes()
        for frame in said:
            master.hear(frame, session)
        master.stream(session) if session in master.out else None
        answered = master.takes(session)
        for frame in answered:
            slave.hear(frame)
        if not said and not answered:
            return


def unsealed(frame: bytes) -> tuple[int, bytes]:
    """Returns kind and payload of a frame as anybody on the wire can read them."""
    flags, kind = frame[3], frame[2]
    return kind, frame[32:] if flags & 128 else frame[16:]


def resummed(frame: bytes, payload: bytes) -> bytes:
    """Returns a frame with another payload and checksums that fit: what somebody without the key can do."""
    flags = frame[3]
    seal = frame[16:32] if flags & 128 else b""
    checksum = 0 if flags & 128 else ha.crc32(payload)
    header = ha._CHECKED_PART.pack(ha.MAGIC, frame[2], flags, len(payload), checksum)
    return header + ha.crc32(header).to_bytes(4, "big") + seal + payload
