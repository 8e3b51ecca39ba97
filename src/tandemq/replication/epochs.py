"""The named history of a log, and how far two histories agree.  Pure.

Every time a node opens for writes as a master it begins an epoch: (number, random incarnation id, first offset).  The
number orders reigns; the id tells apart two that chose the same number because they did not know of each other.
Offsets alone say nothing: two logs of equal length may hold different bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tandemq.codec.ha import HISTORY_MAX, EpochItem


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """One reign: bytes from `start` up to the next epoch's start were written under it."""

    number: int
    id: str
    start: int


@dataclass(frozen=True, slots=True)
class Promise:
    """The highest epoch this node has agreed to serve or to open.  It never goes back, across restarts."""

    number: int = 0
    id: str = ""

    def allows(self, number: int, id: str) -> bool:
        """Whether a master of that epoch may be served: a newer one, or the very one promised to.

        Two that chose one number without knowing of each other are ordered by their ids, so that one of them wins.
        """
        return (number, id) >= (self.number, self.id)


@dataclass(frozen=True, slots=True)
class History:
    """The epochs of one log, oldest first; starts never decrease."""

    epochs: tuple[Epoch, ...] = ()

    @property
    def last(self) -> Epoch | None:
        return self.epochs[-1] if self.epochs else None

    @property
    def last_number(self) -> int:
        return self.epochs[-1].number if self.epochs else 0

    def opened(self, number: int, id: str, start: int) -> "History":
        """This history with a new reign at its end; what began at or after `start` never got a byte and goes."""
        kept = tuple(epoch for epoch in self.epochs if epoch.start < start)
        return History((*kept, Epoch(number, id, start))[-HISTORY_MAX:])

    def number_at(self, offset: int) -> int:
        """The epoch under which the byte at `offset` was written; 0 for bytes older than the first epoch."""
        number = 0
        if self.epochs and self.epochs[-1].start <= offset:
            return self.epochs[-1].number  # the reign of now, nearly always
        for epoch in self.epochs:
            if epoch.start > offset:
                break
            number = epoch.number
        return number

    def number_before(self, end: int) -> int:
        """The last epoch that has a byte in a log that ends at `end`; 0 if none has."""
        return self.number_at(end - 1) if end > 0 else 0

    def stop_of(self, offset: int, end: int) -> int:
        """The end of the run of bytes that share `offset`'s epoch, in a log that ends at `end`."""
        if self.epochs and self.epochs[-1].start <= offset:
            return end
        for epoch in self.epochs:
            if epoch.start > offset:
                return min(epoch.start, end)
        return end

    def agreed_until(self, index: int, end: int) -> int:
        """Where the epoch at `index` stops in a log that ends at `end`."""
        following = self.epochs[index + 1].start if index + 1 < len(self.epochs) else end
        return min(following, end)


def common_point(mine: History, my_end: int, theirs: History, their_end: int) -> int | None:
    """Up to where two logs hold the same bytes; None if they share no epoch.

    The last epoch equal in number and id names everything before it too, since a reign begins with one log.
    """
    positions = {epoch: index for index, epoch in enumerate(theirs.epochs)}
    for index in range(len(mine.epochs) - 1, -1, -1):
        other = positions.get(mine.epochs[index])
        if other is not None:
            return min(mine.agreed_until(index, my_end), theirs.agreed_until(other, their_end))
    return None


def newness(history: History, end: int, alone_from: int) -> tuple[int, int, int, int]:
    """Logs in order: by the last reign that wrote to them, then by length; first without reigns nobody joined."""
    joined = end if alone_from < 0 else min(end, alone_from)
    return history.number_before(joined), joined, history.number_before(end), end


def to_items(history: History) -> list[EpochItem]:
    return [EpochItem(epoch.number, epoch.id, epoch.start) for epoch in history.epochs]


def from_items(items: Iterable[EpochItem]) -> History:
    """A peer's history, in order whatever it sent; at most HISTORY_MAX of the newest."""
    epochs = sorted((Epoch(item.number, item.id, item.start) for item in items), key=lambda e: (e.number, e.start))
    return History(tuple(epochs[-HISTORY_MAX:]))


def new_identity(place: str, random_text: str) -> str:
    """The identity of a new store: where its broker is, for people, and something nobody else has."""
    return f"{place}#{random_text}"


def place_of(replica: str) -> str:
    """Two identities of one place are one node that lost its disk: the older one never comes back."""
    return replica.partition("#")[0]


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """What a node must remember about itself across a crash; see replica_file.py."""

    replica: str
    """This store's identity, made once: `place#random`, see `place_of`."""
    history: History = History()
    promise: Promise = Promise()
    members: frozenset[str] = frozenset()
    """Replicas known to belong to the group, this one not included when it is the master."""
    in_sync: frozenset[str] = frozenset()
    """Replicas whose acks count: any of them may hold acknowledged bytes that this node could lose in a crash."""
    confirmed: int = 0
    """A confirmed offset of the past: a log that ends below it has lost something."""
    reigning: bool = False
    """Set while open for writes, cleared by a clean stop: found set at a start, the node crashed as a master."""
    follows: str = ""
    """The master this replica belongs to or last belonged to; empty for one that reigns or never followed."""
    complete: bool = True
    """Whether a slave has all that its master may have confirmed because of it.  Not after a crash of its machine, nor
    while it catches up: until then it does not open without having heard that master."""

    blind_from: int = -1
    """Bytes from here on were written by reigns that began without asking anybody: 0 for a store that began empty.
    If a replica turns out to hold another reign, these bytes have no say against it.  -1: the group was heard."""

    alone_from: int = -1
    """Of these, bytes from here on are of reigns that no replica has joined: they bind nobody.  -1: somebody joined."""

    before: Promise | None = None
    """While this node campaigns or reigns alone: what it had promised before.  None when somebody may rely on more."""
    campaigned: int = 0
    """The highest number this node ever asked for; never asked for again."""

    def after_machine_crash(self) -> "ReplicaRecord":
        """What a slave received and had not on disk may be gone; a master's record says whom to ask anyway."""
        return replace(self, complete=not self.follows)

    def withdrawn(self) -> "ReplicaRecord":
        """This record without its own campaign that never opened, or opened and stayed alone.

        Nobody but this node could have opened it, so giving it up breaks no promise to anybody; keeping it would depose
        the master that reigns meanwhile as soon as this node follows it.
        """
        return self if self.before is None else replace(self, promise=self.before, before=None)

    @property
    def last_reign(self) -> Epoch | None:
        """The last epoch of this log that may bind anybody."""
        binding = (e for e in reversed(self.history.epochs) if self.alone_from < 0 or e.start < self.alone_from)
        return next(binding, None)

    def with_(self, **changes: object) -> "ReplicaRecord":
        return replace(self, **changes)  # type: ignore[arg-type]


def must_ask(record: ReplicaRecord, end: int) -> frozenset[str]:
    """The replicas that must be heard before this node opens for writes: those on record as in sync.

    After a crash of a master, who was in sync with it; in a former slave, promoted or started again as a master, who
    was in sync with its master when it last heard of it.  A master that stopped cleanly has nobody on record.
    A log shorter than what was once confirmed has lost more than a crash explains, so every member is asked.  One that
    is not complete also asks the master it followed.
    """
    asked = record.in_sync | record.members if end < record.confirmed else record.in_sync
    return asked if record.complete else asked | {record.follows}
