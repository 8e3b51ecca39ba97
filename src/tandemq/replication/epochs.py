"""The named history of a log, and how far two histories agree.  Pure.

Every time a node opens for writes as a master it begins an epoch: (number, random incarnation id, first offset).  The
number orders reigns; the id tells apart two that chose the same number because they did not know of each other.
Offsets alone say nothing: two logs of equal length may hold different bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tandemq.codec.ha_register import Register
from tandemq.codec.ha_session import HISTORY_MAX, EpochItem

PROVISIONAL: Final = "~"
"""Ids of provisional reigns begin with it."""


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """One reign: bytes from `start` up to the next epoch's start were written under it."""

    number: int
    id: str
    start: int

    @property
    def is_provisional(self) -> bool:
        return self.id.startswith(PROVISIONAL)


@dataclass(frozen=True, slots=True)
class Promise:
    """The highest epoch this node has agreed to serve or to open.  It never goes back, across restarts."""

    number: int = 0
    id: str = ""

    def allows(self, number: int, id: str) -> bool:
        """Returns whether a master of that epoch may be served.

        One of a strictly higher number, or the very one promised to.

        Of two that chose one number without knowing of each other, the one refused asks again with a higher one.
        """
        return number > self.number or (number, id) == (self.number, self.id)


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
        """Returns this history with a new reign at its end.

        What began at or after `start` never got a byte and goes.
        """
        regular = not id.startswith(PROVISIONAL)
        kept = tuple(e for e in self.epochs if e.start < start or (e.start == start and not regular))
        return History((*kept, Epoch(number, id, start))[-HISTORY_MAX:])

    def number_at(self, offset: int) -> int:
        """Returns the epoch under which the byte at `offset` was written; 0 for bytes older than the first epoch."""
        number = 0
        if self.epochs and self.epochs[-1].start <= offset:
            return self.epochs[-1].number  # the current reign, nearly always
        for epoch in self.epochs:
            if epoch.start > offset:
                break
            number = epoch.number
        return number

    def reached(self, end: int) -> int:
        """Returns the newest regular epoch whose first offset a log that ends at `end` has reached; 0 if none."""
        return max((e.number for e in self.epochs if e.start <= end and not e.is_provisional), default=0)

    def regular_end(self, end: int) -> int:
        """Returns where the bytes of provisional reigns begin at the end of a log; `end` if it has none."""
        found = end
        for epoch in reversed(self.epochs):
            if epoch.start > end:
                continue
            if not epoch.is_provisional:
                break
            found = epoch.start
        return found

    def number_before(self, end: int) -> int:
        """Returns the last epoch that has a byte in a log that ends at `end`; 0 if none has."""
        return self.number_at(end - 1) if end > 0 else 0

    def stop_of(self, offset: int, end: int) -> int:
        """Returns the end of the run of bytes that share `offset`'s epoch, in a log that ends at `end`."""
        if self.epochs and self.epochs[-1].start <= offset:
            return end
        for epoch in self.epochs:
            if epoch.start > offset:
                return min(epoch.start, end)
        return end

    def agreed_until(self, index: int, end: int) -> int:
        """Returns where the epoch at `index` stops in a log that ends at `end`."""
        following = self.epochs[index + 1].start if index + 1 < len(self.epochs) else end
        return min(following, end)


def common_point(mine: History, my_end: int, theirs: History, their_end: int) -> int | None:
    """Returns up to where two logs hold the same bytes; None if they share no epoch.

    The last epoch equal in number and id names everything before it too, since a reign begins with one log.
    """
    positions = {epoch: index for index, epoch in enumerate(theirs.epochs)}
    for index in range(len(mine.epochs) - 1, -1, -1):
        other = positions.get(mine.epochs[index])
        if other is not None:
            return min(mine.agreed_until(index, my_end), theirs.agreed_until(other, their_end))
    return None


def rank(history: History, end: int, alone_from: int = -1) -> tuple[int, int, int]:
    """Logs in order: by the newest epoch whose first offset the log has reached under that epoch's master, then by end.

    Bytes of provisional reigns, and of reigns that nobody joined (`alone_from`), rank below all others.
    """
    regular = history.regular_end(end if alone_from < 0 else min(end, alone_from))
    return history.reached(regular), regular, end


def to_items(history: History) -> list[EpochItem]:
    return [EpochItem(epoch.number, epoch.id, epoch.start) for epoch in history.epochs]


def from_items(items: Iterable[EpochItem]) -> History:
    """Returns a peer's history, in order whatever it sent; at most HISTORY_MAX of the newest."""
    epochs = sorted((Epoch(item.number, item.id, item.start) for item in items), key=lambda e: (e.number, e.start))
    return History(tuple(epochs[-HISTORY_MAX:]))


def new_identity(place: str, random_text: str) -> str:
    """Returns the identity of a new store: where its broker is, for people, and something nobody else has."""
    return f"{place}#{random_text}"


def place_of(replica: str) -> str:
    """Returns the place of an identity.

    Two identities of one place are one node that lost its disk: the older never returns.
    """
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
    register: Register | None = None
    """The newest register of the group that this replica has stored; see register.py."""
    role: str = ""
    """The master's role it was last promoted to: what its file says is the first wish only."""
    lacks: tuple[int, int] | None = None
    """[start, stop) that its master had kept when this log began, with the last file only, and that it never copied."""
    copying_to: int = -1
    """Of a slave of a RocketMQ master: where that log ended when a copy of it began that has not come so far yet.
    0 when it has, -1 if the two logs were never compared."""

    def after_machine_crash(self) -> "ReplicaRecord":
        """Marks as uncertain the bytes that a slave received and did not sync.

        A master's record says whom to ask anyway.
        """
        return replace(self, complete=self.register is None and not self.follows)

    @property
    def has_opened(self) -> bool:
        """Whether this node has reigned under its newest register: its log knows that epoch."""
        register = self.register
        if register is None:
            return False
        return any((e.number, e.id) == (register.epoch, register.epoch_id) for e in self.history.epochs)

    def withdrawn(self) -> "ReplicaRecord":
        """Returns this record without its own campaign that never opened, or that opened and that nobody joined.

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
    """Returns the replicas that must be heard before this node opens for writes: those on record as in sync.

    After a crash of a master, who was in sync with it; in a former slave, promoted or started again as a master, who
    was in sync with its master when it last heard of it.  A master that stopped cleanly has nobody on record.
    A log shorter than what was once confirmed has lost more than a crash explains, so every member is asked.  One that
    is not complete also asks the master it followed.
    """
    asked = record.in_sync | record.members if end < record.confirmed else record.in_sync
    return asked if record.complete else asked | {record.follows}
