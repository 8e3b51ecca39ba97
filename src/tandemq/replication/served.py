"""Sessions of those who connect to a broker's HA port, from the first byte to the HELLO.  Pure.

A master serves slaves and observers, a slave serves observers (relay_state.py): both bound who has proven nothing yet,
read frames, challenge, and close a session with the reason in the same way.  What a HELLO, a START or an ack means is
for the one that serves to say.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import Register
from tandemq.codec.ha_seal import SEALED_VERSION, Handshake, SealBroken
from tandemq.codec.ha_session import Challenge, Hello, Preamble, Refuse
from tandemq.errors import CodecError
from tandemq.replication.decisions import Close, Decision, Note, Send
from tandemq.replication.epochs import Promise
from tandemq.replication.session import Session, SessionState

UNPROVEN_MAX: Final = 64
"""Connections that have proven nothing yet. They have slots of their own, so that they can't keep slaves out; beyond so
many the oldest one goes of the host that has most: a slave needs a moment to prove itself, who does not has time."""

Refusal = tuple[Reason, str]


class Claim(NamedTuple):
    """What a challenge says of the one that serves: its epoch, who it is, and the register it knows."""

    promise: Promise
    replica: str
    register: Register | None


class ServedSessions:
    """Everybody who is connected to an HA port."""

    def __init__(
        self,
        *,
        group: str,
        shared_key: str,
        claim: Callable[[], Claim],
        new_id: Callable[[], str],
        guest: str,
        host: str,
    ) -> None:
        """`guest` and `host`: what the two sides of a session are called in a refusal."""
        self.sessions: dict[int, Session] = {}
        self._group, self._key = group, shared_key
        self._claim, self._new_id = claim, new_id
        self._guest, self._host = guest, host

    # --- connections ------------------------------------------------------------------------------------------------

    def connected(self, session_id: int, peer: str, now: float) -> list[Decision]:
        """Begins a session with somebody who connected; it speaks first."""
        out: list[Decision] = []
        self.sessions[session_id] = Session(session_id, peer, now, now, now)
        unproven = [session for session in self.sessions.values() if not session.proven]
        if len(unproven) > UNPROVEN_MAX:
            by_host = Counter(session.host for session in unproven)
            oldest = max(unproven, key=lambda session: by_host[session.host])
            text = f"{UNPROVEN_MAX} connections have not proven that they belong here, {oldest.peer} is one of them"
            self.close(out, oldest, Reason.TOO_MANY, text, now)
        return out

    def is_full(self, replica: str, sessions_max: int) -> bool:
        """Returns whether so many others have proven themselves that there is no slot left for this one."""
        others = [other for other in self.sessions.values() if other.proven and other.replica != replica]
        return len(others) >= sessions_max

    def read(
        self,
        out: list[Decision],
        session: Session,
        data: bytes | memoryview,
        now: float,
        handle: Callable[[list[Decision], Session, ha.Event, float], None],
    ) -> None:
        """Reads bytes of our own protocol, however split: `handle` gets what they say while the session stands."""
        try:
            for event in session.frames.feed(data):
                handle(out, session, event, now)
                if session.id not in self.sessions:
                    break
        except SealBroken as error:
            reason = Reason.CORRUPT if session.proven else Reason.KEY_REFUSED
            self.close(out, session, reason, f"{session.replica or session.peer}: {error}", now)
        except CodecError as error:
            self.close(out, session, Reason.CORRUPT, str(error), now)

    def unexpected(self, out: list[Decision], session: Session, event: ha.Event, now: float) -> None:
        """Refuses what no peer says at this point."""
        name = type(event).__name__
        self.close(out, session, Reason.CORRUPT, f"{name} is not expected when {session.state.value}", now)

    # --- handshake --------------------------------------------------------------------------------------------------

    def greeted(self, out: list[Decision], session: Session, preamble: Preamble, now: float) -> None:
        """Challenges a peer that speaks our protocol, if it is of a version we know."""
        session.nonce = preamble.nonce
        if preamble.version not in ha.VERSIONS:
            text = f"HA session version {preamble.version}, this {self._host} speaks up to {max(ha.VERSIONS)}"
            self.close(out, session, Reason.VERSION, text, now)
            return
        session.frames.control_size_max = ha.CONTROL_SIZE_MAX
        self.challenge(out, session, now)

    def challenge(self, out: list[Decision], session: Session, now: float) -> None:
        """Asks a peer that has greeted who it is and what it has; again when what is claimed has changed."""
        promise, replica, register = self._claim()
        session.own_nonce = mine = session.own_nonce or self._new_id()
        session.enter(SessionState.CHALLENGED)
        session.hello = None
        if not self._key:
            proof = ha.key_proof("", "master", session.nonce, mine, self._group)
            told = Challenge(ha.VERSION, mine, proof, promise.number, promise.id, replica, register)
            self.send(out, session, told, now)
            return
        claim = ha.claim_of(promise.id, replica, register)
        handshake = Handshake(self._key, self._group, session.nonce, mine, promise.number, claim)
        told = Challenge(SEALED_VERSION, mine, handshake.proof(), promise.number, promise.id, replica, register)
        self.send(out, session, told, now)
        if session.seal is None:
            session.seal, theirs = handshake.seals()
            session.frames.secure(theirs)

    def unproven(self, session: Session, hello: Hello) -> Refusal | None:
        """Returns why a HELLO does not prove the key; None if it does, or if its seal has done so already."""
        expected = ha.key_proof("", "slave", session.nonce, session.own_nonce, hello.replica)
        if session.seal is None and not ha.same_proof(hello.proof, expected):
            return Reason.KEY_REFUSED, f"{hello.replica} from {session.peer} did not prove the shared key"
        return None

    def misfit(self, session: Session, hello: Hello, segment_size: int) -> Refusal | None:
        """Returns why this peer can't follow this log, whatever it holds.

        Another group, our own identity, other files.
        """
        guest, host = self._guest, self._host
        if hello.group != self._group:
            return Reason.WRONG_GROUP, f"{guest} of group {hello.group!r} at a {host} of group {self._group!r}"
        if hello.replica == self._claim().replica:
            text = f"the {guest} at {session.peer} has this {host}'s own identity {hello.replica}"
            return Reason.SAME_IDENTITY, text
        if hello.segment_size != segment_size:
            text = f"the {guest}'s segments have {hello.segment_size} bytes, this {host}'s {segment_size}"
            return Reason.SEGMENT_SIZE, text
        return None

    # --- frames and ends --------------------------------------------------------------------------------------------

    def send(self, out: list[Decision], session: Session, message: ha.Control, now: float) -> None:
        session.last_sent = now
        out.append(Send(session.id, ha.encode_control(message), session.seal))

    def close(self, out: list[Decision], session: Session, reason: Reason, text: str, now: float) -> None:
        """Ends a session; whoever has greeted in our protocol is told why."""
        if session.nonce:
            self.send(out, session, Refuse(reason.value, text, self._claim().promise.number), now)
        out.append(Close(session.id, reason, text))
        self.forget(out, session, reason, text, now)

    def forget(self, out: list[Decision], session: Session, reason: Reason, text: str, now: float) -> None:
        """Forgets a session that is over, whoever ended it."""
        del self.sessions[session.id]
        name = session.replica or session.host
        out.append(Note(f"ended-{reason.value}", f"session of {name} ended: {text} [{reason.value}]. {reason.advice}"))
