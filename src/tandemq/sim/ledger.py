"""What the group has promised, and whether it still keeps it.

An entry is a range of the log with its bytes and the level it was promised at: a message acknowledged to a producer,
or a range shown to readers.  The ledger looks straight at the disks, past all state machines: at the moment of the
promise the copies must exist; a fault may take a copy from a node only if the level does not promise to survive it;
and a node may begin to write without an entry only if no node that could have been heard still has it.
"""

from dataclasses import dataclass, field
from typing import Protocol


class Violation(AssertionError):
    """An invariant broke; the message tells which and where."""


class Holder(Protocol):
    """A node, as far as the ledger looks at it."""

    name: str

    def holds(self, start: int, data: bytes, *, durable: bool = False) -> bool:
        """Whether exactly these bytes are in its log (or, durable, on its platter)."""
        ...


@dataclass(slots=True, eq=False)
class Entry:
    """A promise."""

    kind: str
    start: int
    data: bytes
    copies: int
    durable: bool
    master: str
    """Who made it: a promise of one copy is about this node alone."""
    losers: list["Holder"] = field(default_factory=list)
    """Nodes from which a fault took it."""

    @property
    def is_void(self) -> bool:
        """As many faults as it has copies have taken it: beyond what was promised, even if somebody else has it too."""
        return sum(not node.holds(self.start, self.data) for node in self.losers) >= self.copies

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def __str__(self) -> str:
        disk = ":durable" if self.durable else ""
        return f"{self.kind} [{self.start}, {self.end}) at {self.copies}{disk} by {self.master}"


class Ledger:
    """All promises still standing."""

    def __init__(self, nodes: list[Holder]) -> None:
        self.nodes = nodes
        self.entries: list[Entry] = []
        self.made = 0

    def promise(self, entry: Entry, excused: int) -> None:
        """That many copies must exist now, save those on nodes that died under way (`excused`)."""
        held = [node.name for node in self.nodes if node.holds(entry.start, entry.data, durable=entry.durable)]
        if len(held) + excused < entry.copies:
            raise Violation(f"{entry}: promised, but only {held or 'nobody'} has it")
        self.made += 1
        if held:
            self.entries.append(entry)

    def held_by(self, node: Holder, *, durable: bool = False) -> list[Entry]:
        """What a node has of all that was promised."""
        return [entry for entry in self.entries if node.holds(entry.start, entry.data, durable=durable)]

    def lost(self, node: Holder, held: list[Entry]) -> None:
        """A node is back after a fault: what of all it held has it no more?"""
        for entry in held:
            if node not in entry.losers and not node.holds(entry.start, entry.data):
                entry.losers.append(node)

    def survived(self, node: Holder, must: list[Entry], fault: str) -> None:
        """A node is back after a fault that could not take `must` from it."""
        for entry in must:
            if not node.holds(entry.start, entry.data):
                raise Violation(f"{entry}: {node.name} lost it in a {fault}, which it must survive")
        self._forget_gone()

    def _forget_gone(self) -> None:
        """Faults took the last copy: beyond what was promised."""
        self.entries = [
            entry for entry in self.entries if any(node.holds(entry.start, entry.data) for node in self.nodes)
        ]

    def forgive_single(self, master: str) -> None:
        """A reign ended: what had one copy, on that master alone, may be cut."""
        self.entries = [entry for entry in self.entries if entry.copies > 1 or entry.master != master]

    def expired(self, first: int) -> None:
        """Retention has deleted everything below `first` somewhere: nobody promised to keep it any longer."""
        self.entries = [entry for entry in self.entries if entry.start >= first]

    def opened(self, node: Holder, unheard: list[Holder]) -> None:
        """A node begins to write: what it lacks is gone for good, unless the operator chose not to hear who has it."""
        kept = []
        for entry in self.entries:
            if node.holds(entry.start, entry.data):
                kept.append(entry)
            elif entry.copies > 1 or entry.master == node.name:
                others = [n.name for n in self.nodes if n not in unheard and n.holds(entry.start, entry.data)]
                if others and not entry.is_void:
                    raise Violation(f"{entry}: {node.name} opened for writes without it, {others} still had it")
        self.entries = [entry for entry in kept if entry.copies > 1 or entry.master == node.name]

    def settled(self, node: Holder) -> None:
        """At the end, with everything healed, the master must have all of it."""
        for entry in self.entries:
            counts = (entry.copies > 1 or entry.master == node.name) and not entry.is_void
            if counts and not node.holds(entry.start, entry.data):
                raise Violation(f"{entry}: not in the log of the last master {node.name}")
