"""A slave's side towards observers: it hands on what it has and what is confirmed.  Pure: bytes and `now` in.

Any broker of a group, an observer too, may be followed by observers, so that neither the master nor a link between two
sites carries the same bytes twice.  The session is the one a master speaks (ha_session), from CHALLENGE to DATA.  What
makes a master is left out: nobody is counted, nobody is waited for, nobody can depose anybody.

A log that comes from a RocketMQ broker has no epochs that a session could agree on. It is handed on as it came, in
RocketMQ's protocol.

Only confirmed bytes are handed on: they are never cut.  When the history that this slave follows changes, every session
ends; the observer greets again and is told the new one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tandemq.codec import ha_classic
from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_seal import FAST_SIZE_MIN, POLY1305, log_sum
from tandemq.codec.ha_session import Ack, Hello, Preamble, Refuse, Registered, Start, Welcome
from tandemq.replication.decisions import Batch, Close, Decision, Note, Send
from tandemq.replication.epochs import History, ReplicaRecord, common_point, from_items, to_items
from tandemq.replication.served import Claim, Refusal, ServedSessions
from tandemq.replication.session import Session, SessionState

UNPROVEN_SECONDS = 5.0
"""How long a connection may take to say who it is."""
CLASSIC_FRAME = 32 << 10
"""Bytes of log in a frame of RocketMQ's protocol, as its brokers send them by default."""
SESSIONS_MAX = 16
"""Observers of one slave; a chain is meant to spread them."""


@dataclass(frozen=True, slots=True)
class RelayTerms:
    """What the operator decided, in seconds and bytes."""

    group: str
    shared_key: str = ""
    heartbeat: float = 5.0
    housekeeping: float = 20.0
    batch: int = 8 << 20


@dataclass(frozen=True, slots=True)
class RelayLog:
    """What this slave can hand on: [first, confirmed)."""

    first: int
    confirmed: int
    segment_size: int


class RelayState:
    """The sessions of one slave's observers."""

    def __init__(
        self,
        terms: RelayTerms,
        record: Callable[[], ReplicaRecord],
        log: Callable[[], RelayLog],
        new_id: Callable[[], str],
    ) -> None:
        self.terms = terms
        self._record, self._log = record, log
        self._served = ServedSessions(
            group=terms.group,
            shared_key=terms.shared_key,
            claim=lambda: Claim(record().promise, record().replica, record().register),
            new_id=new_id,
            guest="observer",
            host="slave",
        )
        self.sessions = self._served.sessions

    # --- connections ------------------------------------------------------------------------------------------------

    def connected(self, session_id: int, peer: str, now: float) -> list[Decision]:
        """Begins a session with somebody who connected to the HA port; it speaks first."""
        return self._served.connected(session_id, peer, now)

    def disconnected(self, session_id: int) -> None:
        """Forgets a session whose connection is gone."""
        self.sessions.pop(session_id, None)

    def changed(self, now: float) -> list[Decision]:
        """Ends sessions, because what observers were told no longer holds: this slave follows another history."""
        out: list[Decision] = []
        for session in list(self.sessions.values()):
            self._served.close(
                out, session, Reason.STOPPING, "this broker follows another reign now; greet it again", now
            )
        return out

    def receive(self, session_id: int, data: bytes | memoryview, now: float) -> list[Decision]:
        """Takes bytes from an observer, however split."""
        out: list[Decision] = []
        session = self.sessions.get(session_id)
        if session is None or not len(data):
            return out
        session.last_heard = now
        if not session.spoke and not ha.is_extended(data[0]):
            if self._record().history.epochs or self.terms.shared_key:
                text = "this broker is a slave: it serves TandemQ observers only"
                self._served.close(out, session, Reason.NOT_MASTER, text, now)
                return out
            session.classic = True
        session.spoke = True
        if session.classic:
            self._on_reports(out, session, data, now)
        else:
            self._served.read(out, session, data, now, self._dispatch)
        return out

    def _on_reports(self, out: list[Decision], session: Session, data: bytes | memoryview, now: float) -> None:
        """Sends from where the first report says; like RocketMQ's own slaves, this one then sends all it gets."""
        for offset in session.reports.feed(data):
            if session.is_streaming:
                continue  # a sign of life: an observer says what it has once
            log = self._log()
            if not log.first <= offset <= log.confirmed:
                text = f"report of {offset}, this slave hands on [{log.first}, {log.confirmed})"
                self._served.close(out, session, Reason.OFFSET_GONE, text, now)
                return
            session.replica, session.observer, session.proven = f"classic@{session.peer}", True, True
            session.sent = session.received = session.durable = session.applied = offset
            session.rate_from = now
            session.enter(SessionState.CATCHING_UP)
            out.append(Note("observer", f"observer {session.peer} follows from {offset}, in RocketMQ's protocol"))

    def _dispatch(self, out: list[Decision], session: Session, event: ha.Event, now: float) -> None:
        if isinstance(event, Ack) and session.is_streaming:
            self._on_ack(out, session, event, now)
        elif isinstance(event, Preamble) and session.state is SessionState.CONNECTED:
            self._on_preamble(out, session, event, now)
        elif isinstance(event, Hello) and session.state is SessionState.CHALLENGED:
            self._on_hello(out, session, event, now)
        elif isinstance(event, Start) and session.state is SessionState.CHECKING:
            self._on_start(out, session, event, now)
        elif isinstance(event, Registered):
            pass  # what an observer stored of the register matters to nobody
        elif isinstance(event, Refuse | ha.Farewell):
            self.sessions.pop(session.id, None)
            out.append(Close(session.id, Reason.LOST, event.text))
        else:
            self._served.unexpected(out, session, event, now)

    # --- handshake --------------------------------------------------------------------------------------------------

    def _on_preamble(self, out: list[Decision], session: Session, preamble: Preamble, now: float) -> None:
        if not self._record().history.epochs:
            session.nonce = preamble.nonce
            text = "this broker has not followed a TandemQ master yet, so its log has no history to tell"
            self._served.close(out, session, Reason.NOT_MASTER, text, now)
            return
        self._served.greeted(out, session, preamble, now)

    def _on_hello(self, out: list[Decision], session: Session, hello: Hello, now: float) -> None:
        refusal = self._refusal(session, hello)
        if refusal is not None:
            self._served.close(out, session, *refusal, now)
            return
        record, log = self._record(), self._log()
        session.replica, session.address, session.observer = hello.replica, hello.address, True
        session.packs, session.proven = hello.compression == ha.ZSTD, True
        session.fast_sums = hello.sums == POLY1305
        session.hello, session.history = hello, from_items(hello.history)
        history = History(tuple(epoch for epoch in record.history.epochs if epoch.start <= log.confirmed))
        session.start_max = common_point(history, log.confirmed, session.history, hello.end) or 0
        empty_at = log.first
        if hello.last_file_only:
            empty_at = max(log.first, log.confirmed - log.confirmed % log.segment_size)
        welcome = Welcome(
            replica=record.replica,
            open=True,
            number=record.promise.number,
            id=record.promise.id,
            first=log.first,
            end=log.confirmed,
            start_empty_at=empty_at,
            history=to_items(history),
            members=sorted(record.members),
            in_sync=sorted(record.in_sync),
            register=record.register,
        )
        session.welcomed(empty_at, session.start_max)
        self._served.send(out, session, welcome, now)

    def _refusal(self, session: Session, hello: Hello) -> Refusal | None:
        promise = self._record().promise
        unproven = self._served.unproven(session, hello)
        if unproven is not None:
            return unproven
        if not hello.observer:
            return Reason.NOT_MASTER, "this broker is a slave: it serves observers (haObserver=true) only"
        if self._served.is_full(hello.replica, SESSIONS_MAX):
            return Reason.TOO_MANY, f"there are {SESSIONS_MAX} observers already"
        misfit = self._served.misfit(session, hello, self._log().segment_size)
        if misfit is not None:
            return misfit
        if (hello.promised_number, hello.promised_id) != (promise.number, promise.id):
            text = f"the observer belongs to epoch {hello.promised_number}, this slave to {promise.number}"
            return Reason.PROMISED, text
        return None

    def _on_start(self, out: list[Decision], session: Session, start: Start, now: float) -> None:
        log = self._log()
        if not log.first <= start.offset <= log.confirmed or start.offset > max(session.start_max, session.sent):
            text = f"START at {start.offset}, this slave hands on [{log.first}, {log.confirmed})"
            self._served.close(out, session, Reason.OFFSET_GONE, text, now)
            return
        session.follows_from(start.offset, start.offset, start.durable, now)
        out.append(Note("observer", f"observer {session.replica} ({session.peer}) follows from {start.offset}"))

    def _on_ack(self, out: list[Decision], session: Session, ack: Ack, now: float) -> None:
        if not session.received <= ack.received <= session.sent:
            text = f"ack of {ack.received}, it was sent up to {session.sent}"
            self._served.close(out, session, Reason.BAD_ACK, text, now)
            return
        session.acked(ack.received, ack.durable, ack.applied)
        if session.received >= self._log().confirmed:
            session.caught_up_at = now

    # --- log bytes --------------------------------------------------------------------------------------------------

    def next_batch(self, session_id: int) -> Batch | None:
        """Returns what to send next on a session; None if it has everything."""
        session, log = self.sessions.get(session_id), self._log()
        if session is None or not session.is_streaming or session.sent >= log.confirmed:
            return None
        if session.sent < log.first:
            return None  # retention has overtaken it: `tick` ends the session
        stop = self._record().history.stop_of(session.sent, log.confirmed)
        room = log.segment_size - session.sent % log.segment_size
        largest = ha.PACK_SIZE_MAX if session.packs else CLASSIC_FRAME if session.classic else self.terms.batch
        size = min(stop - session.sent, room, largest)
        return Batch(session.sent, size)

    def frame(self, session_id: int, data: memoryview) -> bytes:
        """Returns a batch as one frame, its bytes included."""
        session = self.sessions[session_id]
        if session.classic:
            session.received = session.sent  # nothing that it says tells more
            return ha_classic.encode_transfer_header(session.sent, len(data)) + data
        epoch, confirmed = self._record().history.number_at(session.sent), self._log().confirmed
        session.told_confirmed = confirmed
        if session.packs:
            packed = ha.encode_packed(epoch, session.sent, confirmed, data)
            return packed if session.seal is None else ha.sealed(packed, session.seal)
        if session.seal is None:
            return ha.encode_data_header(epoch, session.sent, confirmed, data) + data
        fast = session.fast_sums and len(data) >= FAST_SIZE_MIN
        digest = log_sum(data, session.seal.fast_key if fast else None)
        head = ha.encode_sealed_data_header(
            session.seal, epoch, session.sent, confirmed, len(data), digest, False, False, fast
        )
        return head + data

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Decision]:
        """Heartbeats and silence."""
        out: list[Decision] = []
        log = self._log()
        for session in list(self.sessions.values()):
            if not session.is_streaming and now - session.connected_at >= UNPROVEN_SECONDS:
                self._served.close(out, session, Reason.SILENT, "it did not say who it is", now)
            elif now - session.last_heard >= self.terms.housekeeping:
                text = f"the observer was silent for {self.terms.housekeeping:g} s"
                self._served.close(out, session, Reason.SILENT, text, now)
            elif session.is_streaming and session.sent < log.first:
                text = f"bytes from {session.sent} on are gone, the log begins at {log.first}"
                self._served.close(out, session, Reason.OFFSET_GONE, text, now)
            elif session.is_streaming and now - session.last_sent >= self.terms.heartbeat:
                session.last_sent = now
                if session.classic:
                    out.append(Send(session.id, ha_classic.encode_transfer_header(session.sent, 0)))
                    continue
                epoch = self._record().history.number_at(session.sent)
                beat = ha.encode_data_header(epoch, session.sent, min(log.confirmed, session.sent), b"")
                out.append(Send(session.id, beat, session.seal))
        return out
