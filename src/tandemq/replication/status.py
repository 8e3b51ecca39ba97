"""One snapshot of a node's replication: `tandemq ha status`, metrics, 907 and logs all render this."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A slave, as its master sees it; also one that is away but known."""

    replica: str
    address: str
    peer: str
    state: str
    protocol: str
    received: int
    durable: int
    applied: int
    lag_bytes: int
    lag_ms: int
    """How long ago it last had everything; 0 while it does."""
    rate: float
    """Bytes a second it is being sent."""
    in_sync: bool
    error: str = ""
    reason: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class HaStatus:
    """A node's replication at one moment."""

    role: str
    phase: str
    replica: str
    group: str
    epoch: int
    first: int
    end: int
    flushed: int
    confirmed: int
    level: str
    waiting_for: tuple[str, ...] = ()
    """Replicas a master must hear before it writes."""
    opened_without: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    in_sync: tuple[str, ...] = ()
    replicas: tuple[ReplicaStatus, ...] = ()
    waiting_sends: int = 0
    master: str = ""
    """HA address of the master a slave follows."""
    master_replica: str = ""
    protocol: str = ""
    lag_bytes: int = 0
    received_bytes: int = 0
    error: str = ""
    reason: str = ""
    advice: str = ""
    cuts: tuple[str, ...] = ()
    """What was cut off this log since the start, and why."""
    cut_bytes: int = 0
    events: dict[str, int] = field(default_factory=dict)
    """How often each thing happened since the start."""
