"""What the state machines decide and a shell carries out: in the order given, each one finished before the next.

A shell that can't carry one out (a disk error) carries out none of the rest: the order is what makes the promises true,
e.g. a promise is on disk before the frame that speaks of it is sent.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tandemq.codec import ha_session
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import Register
from tandemq.codec.ha_seal import Seal
from tandemq.replication.acks import Complete
from tandemq.replication.epochs import Epoch, ReplicaRecord


class Send(NamedTuple):
    """One frame for the peer of a session."""

    session: int
    data: bytes
    seal: Seal | None = None
    """In a group with a key: what seals the frame when it leaves, so that seals count frames as the wire has them."""

    def frame(self) -> bytes:
        """Returns what goes out, now; to be called once."""
        return self.data if self.seal is None else ha_session.sealed(self.data, self.seal)


class Close(NamedTuple):
    """End a session, after what was sent on it; the state machine has already forgotten it."""

    session: int
    reason: Reason
    text: str


class Save(NamedTuple):
    """Make the record durable; then tell `saved`."""

    record: ReplicaRecord


class Truncate(NamedTuple):
    """Cut the log to `offset`, after saving [offset, end) aside."""

    offset: int
    end: int
    why: str


class Reset(NamedTuple):
    """Drop the whole log and begin an empty one at `offset`; bytes from `save_from` on are saved aside first."""

    offset: int
    save_from: int
    end: int
    why: str
    event: str
    """Name under which the metrics count it: `reset-empty`, `reset-diverged`, `reset-offset-gone`, …"""


class Append(NamedTuple):
    """Log bytes at the end of the log; a view is of the bytes just fed and holds until the next are."""

    offset: int
    data: bytes | memoryview


class Commit(NamedTuple):
    """`size` log bytes are already in the window at the end of the log, received there, and may count."""

    size: int


class Discard(NamedTuple):
    """What was received into the window is damaged: wipe `size` bytes of it."""

    size: int


class FlushSoon(NamedTuple):
    """Somebody waits for the durable offset: start an fdatasync now."""


class Prepare(NamedTuple):
    """About to open for writes: cut an incomplete last record, flush everything, then tell `prepared(end)`."""


class Propose(NamedTuple):
    """Swap the register where the coordinator keeps it; then tell `swapped` or, if another one is there, `learned`.

    Repeated until the outcome is known: what is written there without this node's knowledge may lose messages.
    """

    expected: Register | None
    new: Register


class Confirm(NamedTuple):
    """Readers may see everything below `offset`."""

    offset: int


class Opened(NamedTuple):
    """Open for writes, under this epoch."""

    epoch: Epoch


class SteppedDown(NamedTuple):
    """The reign is over; nothing may be acknowledged any more.  `asking`: it tries to win the log back first."""

    text: str
    number: int
    asking: bool


class Note(NamedTuple):
    """One line for the log and for the counter named `event`."""

    event: str
    text: str
    loud: bool = False


Decision = (
    Send
    | Close
    | Save
    | Truncate
    | Reset
    | Append
    | Commit
    | Discard
    | FlushSoon
    | Prepare
    | Propose
    | Confirm
    | Complete
    | Opened
    | SteppedDown
    | Note
)


@dataclass(slots=True)
class LogEnds:
    """A state machine's view of its node's log.  Invariant: first <= flushed <= end, except right after a cut."""

    first: int
    end: int
    flushed: int
    segment_size: int


class Batch(NamedTuple):
    """The next bytes of a stream: [offset, offset + size_max) at most, all of one epoch."""

    offset: int
    size_max: int
