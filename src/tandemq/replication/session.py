"""One slave as its master sees it: a connection, its state, its offsets.  Pure."""

from dataclasses import dataclass, field
from enum import Enum

from tandemq.codec.ha import FrameReader, Hello, ReportReader
from tandemq.replication.epochs import History


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


@dataclass(slots=True)
class Session:
    """Invariants: durable <= received <= sent <= end of the master's log; offsets never go back."""

    id: int
    peer: str
    """Address and port of the other end."""
    connected_at: float
    last_heard: float
    last_sent: float
    state: SessionState = SessionState.CONNECTED
    classic: bool = False
    replica: str = ""
    """Identity: the slave's own, or `classic@host` for a RocketMQ slave, which has none."""
    address: str = ""
    nonce: str = ""
    """The slave's; `own_nonce` is ours.  Both go into both proofs of the shared key."""
    own_nonce: str = ""
    hello: Hello | None = None
    history: History = field(default_factory=History)
    start_max: int = 0
    """The furthest START that agrees with the common point we computed ourselves."""
    sent: int = 0
    received: int = 0
    durable: int = 0
    applied: int = 0
    told_confirmed: int = -1
    caught_up_at: float | None = None
    """Since when, or last when, it had everything."""
    sent_bytes: int = 0
    budget: float = 0.0
    budget_at: float = 0.0
    reports: ReportReader = field(default_factory=ReportReader)
    frames: FrameReader = field(default_factory=FrameReader)
    rate_bytes: int = 0
    rate_from: float = 0.0
    rate: float = 0.0
    """Bytes per second over the last full second or more."""

    @property
    def is_streaming(self) -> bool:
        return self.state in STREAMING

    def was_sent(self, stop: int, now: float) -> None:
        """Log bytes up to `stop` are on their way."""
        size = stop - self.sent
        self.sent = stop
        self.sent_bytes += size
        self.last_sent = now
        self.budget -= size
        self.rate_bytes += size
        if now - self.rate_from >= 1.0:
            self.rate = self.rate_bytes / (now - self.rate_from) if self.rate_from else 0.0
            self.rate_bytes, self.rate_from = 0, now

    def allowance(self, rate_max: int, now: float) -> int:
        """Bytes that may be sent now under a rate cap; a tenth of a second's worth may be saved up."""
        burst = rate_max / 10
        self.budget = min(burst, self.budget + (now - self.budget_at) * rate_max)
        self.budget_at = now
        return int(self.budget)
