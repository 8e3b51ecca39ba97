"""What a node's replication tells its broker: callbacks, because it knows nothing of brokers."""

from collections.abc import Callable
from dataclasses import dataclass

from tandemq.replication.decisions import Propose
from tandemq.replication.following.core import Vouching


@dataclass(frozen=True, slots=True)
class NodeCallbacks:
    """What the node tells its broker."""

    opened: Callable[[], None]
    """Writes may be taken."""
    closed: Callable[[str, bool], None]
    """No write may be taken any more: why, and whether another master reigns (else this one asks again)."""
    readable: Callable[[], None]
    """More may be dispatched."""
    following: Callable[[], None] = lambda: None
    """A slave has a session with its master."""
    recorded: Callable[[], None] = lambda: None
    """The replica record changed: perhaps the group's members."""
    lost: Callable[[], None] = lambda: None
    """A slave's session with its master has ended."""
    proposed: Callable[[Propose], None] = lambda proposal: None
    """A master wants the coordinator to change the register."""
    vouch: Vouching | None = None
    """A slave's master asks for its word not to stand; None: there is no coordinator."""
