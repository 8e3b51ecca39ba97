"""One snapshot of a node's replication: `tandemq ha status`, metrics, 907 and logs all render this."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tandemq.codec.ha_register import Register


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
    is_member: bool = True
    """Whether it belongs to the group or is joining it: anybody else may stay away without being missed."""
    error: str = ""
    reason: str = ""
    advice: str = ""
    error_age_ms: int = 0
    """How long ago the error came, or the replica left."""


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
    lag_ms: int = 0
    master_first: int = -1
    """Where the log of a RocketMQ master begins and ends, as it told last; -1 if it did not."""
    master_end: int = -1
    seconds_left: float | None = None
    """Of a copy from a RocketMQ master, at its current rate; None if that is not known."""
    lacks: tuple[int, int] | None = None
    """[start, stop) of the master's retained log that lies below the beginning of this one."""
    copying_to: int = -1
    """Where the log of a RocketMQ master ended when a copy of it began that has not come so far; not above 0: none."""
    received_bytes: int = 0
    error: str = ""
    reason: str = ""
    advice: str = ""
    error_age_ms: int = 0
    cuts: tuple[str, ...] = ()
    """What was cut off this log since the start, and why."""
    cut_bytes: int = 0
    events: dict[str, int] = field(default_factory=dict)
    """How often each thing happened since the start."""
    provisional: bool = False
    """Open, but alone: it acknowledges one copy only until those it waits for are heard."""
    lease_left: float | None = None
    """With a coordinator: seconds for which this node may still acknowledge; None without one."""
    elections: dict[str, int] = field(default_factory=dict)
    """With a coordinator: reigns that began here since the start, by reason."""
    without_master: float = 0.0
    """With a coordinator: seconds for which nobody has reigned."""
    register: dict[str, Any] | None = None
    """The register of the group as this node has stored it; see `register_shown`."""

    @property
    def missing_bytes(self) -> int:
        """Bytes that a RocketMQ master had kept and this slave never copied, as far as it was told."""
        if self.role != "slave":
            return 0
        before = self.lacks[1] - self.lacks[0] if self.lacks is not None else 0
        return before + max(0, self.copying_to - self.end)


def register_shown(register: Register | None, waits: Mapping[str, frozenset[str]]) -> dict[str, Any] | None:
    """Returns the register as plain data; `waits` says for whom each one that joins still waits."""
    if register is None:
        return None
    shown: dict[str, Any] = msgspec.to_builtins(register)
    in_sync = set(register.in_sync)
    for member in shown["members"]:
        member["in_sync"] = member["replica"] in in_sync
    for newcomer in shown["joining"]:
        newcomer["waits_for"] = sorted(waits.get(newcomer["replica"], ()))
    return shown
