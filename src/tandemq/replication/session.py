"""One slave as its master sees it: a connection, its state, its offsets, and how each of them changes.  Pure."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from tandemq.codec.ha_classic import ReportReader
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_seal import Seal
from tandemq.codec.ha_session import PREAMBLE_SIZE_MAX, Hello, SessionReader
from tandemq.replication.epochs import History

log = logging.getLogger(__name__)


class SessionState(Enum):
    """Where a session is; the value is shown to operators."""

    CONNECTED = "connected"
    """Nothing heard yet: classic or extended is not known."""
    CHALLENGED = "challenged"
    """It spoke first; our challenge is out, its HELLO is awaited."""
    WAITING = "waiting"
    """It told its history; this master still asks and has not opened."""
    CHECKING = "checking"
    """It was told our history and cuts to the common point; its START is awaited."""
    CATCHING_UP = "catching up"
    """It is sent the log; its acks don't count yet."""
    IN_SYNC = "in sync"
    """Its acks count."""
    DONATING = "donating"
    """It sends back what this master lost."""


STREAMING = (SessionState.CATCHING_UP, SessionState.IN_SYNC)

FRAME_SIZE_FIRST = 1 << 20
FRAME_SIZE_LEAST = 64 << 10
QUICK_S, SLOW_S = 0.125, 0.5
"""A frame that leaves in less time may be followed by a larger one; after one that takes longer they are smaller."""


@dataclass(slots=True)
class Session:
    """Invariants while it streams: durable <= received <= sent <= end of the master's log; offsets never go back."""

    id: int
    peer: str
    """Address and port of the other end."""
    connected_at: float
    last_heard: float
    last_sent: float
    state: SessionState = SessionState.CONNECTED
    spoke: bool = False
    """Its first byte has come, which says whether it is classic."""
    classic: bool = False
    replica: str = ""
    """Identity: the slave's own, or `classic@host` for a RocketMQ slave, which has none."""
    address: str = ""
    observer: bool = False
    """It is sent the log and counts for nothing."""
    packs: bool = False
    """It asked for its log bytes packed."""
    fast_sums: bool = False
    """It knows the fast sums of sealed log bytes."""
    nonce: str = ""
    """The slave's; `own_nonce` is ours.  Both go into both proofs of the shared key."""
    own_nonce: str = ""
    seal: Seal | None = None
    """Of the frames to the slave, in a group with a key, from our first challenge on."""
    proven: bool = False
    """Whether the peer has shown that it belongs here: by a HELLO, sealed where there is a key, or a first report of a
    RocketMQ slave. Nothing that comes before may change anything but this session."""
    hello: Hello | None = None
    history: History = field(default_factory=History)
    start_max: int = 0
    """The furthest START that agrees with the common point we computed ourselves."""
    sent: int = 0
    received: int = 0
    durable: int = 0
    applied: int = 0
    told_confirmed: int = -1
    told_register: int = -1
    """The revision of the register it was last sent."""
    has_minted: bool = False
    """It has stored the register that a group of the version before is about to get."""
    caught_up_at: float | None = None
    """Since when, or last when, it had everything."""
    frame_max: int = FRAME_SIZE_FIRST
    """Log bytes of a frame that take less than a second on this link: what a cut link or a heartbeat loses by one."""
    frame_size: int = 0
    frame_at: float = 0.0
    """Log bytes of the last frame, and when it began to leave."""
    budget: float = 0.0
    budget_at: float = 0.0
    reports: ReportReader = field(default_factory=ReportReader)
    frames: SessionReader = field(default_factory=lambda: SessionReader(PREAMBLE_SIZE_MAX))
    rate_bytes: int = 0
    rate_from: float = 0.0
    rate: float = 0.0
    """Bytes per second over the last full second or more."""

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0]

    @property
    def is_streaming(self) -> bool:
        return self.state in STREAMING

    # --- transitions ------------------------------------------------------------------------------------------------

    def enter(self, state: SessionState) -> None:
        """Changes the state; nothing else does."""
        if state is not self.state:
            name = self.replica or self.peer
            log.debug("session %d of %s: %s -> %s", self.id, name, self.state.value, state.value)
        self.state = state

    def welcomed(self, start_empty_at: int, start_max: int) -> None:
        """Notes that it was told our history.

        It follows from `start_max` at most, or from `start_empty_at` with an empty log.
        """
        self.sent, self.start_max = start_empty_at, start_max
        self.enter(SessionState.CHECKING)

    def follows_from(self, start: int, received: int, durable: int, now: float) -> None:
        """Sends it the log from `start` on."""
        self.sent = start
        self.received = self.applied = received
        self.durable = min(durable, received)
        self.budget_at = self.rate_from = now
        self.enter(SessionState.CATCHING_UP)
        self._check()

    def acked(self, received: int, durable: int, applied: int) -> None:
        """Takes how far it is; a slave never has more on disk than it received."""
        self.received = received
        self.durable = max(self.durable, min(durable, received))
        self.applied = applied
        self._check()

    def _check(self) -> None:
        assert self.durable <= self.received <= self.sent, f"{self.durable} <= {self.received} <= {self.sent}"

    def was_sent(self, stop: int, now: float) -> None:
        """Notes that log bytes up to `stop` are on their way."""
        size = stop - self.sent
        if self.frame_size == self.frame_max:  # more followed at once, so the time until now is what it took
            took = now - self.frame_at
            if took > SLOW_S:
                self.frame_max = max(FRAME_SIZE_LEAST, self.frame_max // 2)
            elif took < QUICK_S:
                self.frame_max *= 2
        self.frame_size, self.frame_at = size, now
        self.sent = stop
        self.last_sent = now
        self.budget -= size
        self.rate_bytes += size
        if now - self.rate_from >= 1.0:
            self.rate = self.rate_bytes / (now - self.rate_from) if self.rate_from else 0.0
            self.rate_bytes, self.rate_from = 0, now

    def allowance(self, rate_max: int, now: float) -> int:
        """Returns the bytes that may be sent now under a rate cap; a tenth of a second's worth may be saved up."""
        burst = rate_max / 10
        self.budget = min(burst, self.budget + (now - self.budget_at) * rate_max)
        self.budget_at = now
        return int(self.budget)


@dataclass(frozen=True, slots=True)
class Departure:
    """How the last session of a replica ended, and what the replica had acknowledged by then."""

    at: float
    reason: Reason
    text: str
    address: str = ""
    received: int = 0
    durable: int = 0
    applied: int = 0
    had_everything_at: float | None = None
    """When it last had everything; None if that was never seen."""


def departure_of(session: Session, before: Departure | None, reason: Reason, text: str, now: float) -> Departure:
    """Returns what is known of a replica whose session ends.

    A session that ended before the log was sent tells nothing about positions: what the one `before` told still holds.
    """
    if session.is_streaming or before is None:
        address, had_at = session.address, session.caught_up_at
        received, durable, applied = session.received, session.durable, session.applied
    else:
        address, had_at = before.address or session.address, before.had_everything_at
        received, durable, applied = before.received, before.durable, before.applied
    return Departure(now, reason, text, address, received, durable, applied, had_at)


def have_all(sessions: Iterable[Session], end: int) -> bool:
    """Returns whether a master may hand over: somebody follows it, and all who do have everything up to `end`."""
    following = [session for session in sessions if session.is_streaming and not session.observer]
    return bool(following) and all(session.received >= end for session in following)
