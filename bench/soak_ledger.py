"""What a soak sent and what came: every message that was acknowledged must come, numbers of queues only grow. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

QueueName = tuple[str, int]
"""(topic, queue id)"""


@dataclass(slots=True)
class Waiting:
    """An acknowledged message that has not come yet."""

    kind: str
    due_ms: int
    """By the clock of the broker that took it; 0 for one that is due at once."""
    queue: QueueName
    queue_offset: int


@dataclass(slots=True)
class Ledger:
    """Keys name messages. A message is forgotten once it was acknowledged and came, so that an hour fits in memory."""

    waiting: dict[str, Waiting] = field(default_factory=dict)
    came_first: dict[str, int] = field(default_factory=dict)
    """Came before its answer, or never got one: key -> when it was stored."""
    acknowledged: Counter[str] = field(default_factory=Counter)
    received: int = 0
    early: int = 0
    """Delayed messages that were delivered before they were due."""
    repeated_numbers: int = 0
    """A queue gave a number that it had given before."""
    _floor: dict[QueueName, int] = field(default_factory=dict)
    _highest: dict[QueueName, int] = field(default_factory=dict)

    def note_ack(self, key: str, found: Waiting) -> None:
        self.acknowledged[found.kind] += 1
        if found.kind == "plain":
            self.repeated_numbers += found.queue_offset <= self._floor.get(found.queue, -1)
            self._highest[found.queue] = max(self._highest.get(found.queue, -1), found.queue_offset)
        stored_ms = self.came_first.pop(key, None)
        if stored_ms is None:
            self.waiting[key] = found
        else:
            self._note_time(found, stored_ms)

    def note_received(self, key: str, stored_ms: int) -> None:
        self.received += 1
        found = self.waiting.pop(key, None)
        if found is None:
            self.came_first[key] = stored_ms
        else:
            self._note_time(found, stored_ms)

    def _note_time(self, found: Waiting, stored_ms: int) -> None:
        self.early += stored_ms < found.due_ms

    def be_quiet(self) -> None:
        """Nothing is on its way: what came without an answer never gets one, and numbers given so far are gone."""
        self.came_first.clear()
        self._floor = dict(self._highest)

    def missing(self, kinds: Iterable[str] = ()) -> dict[str, Waiting]:
        """Returns what was acknowledged and has not come, of some kinds or of all."""
        wanted = set(kinds)
        return {key: found for key, found in self.waiting.items() if not wanted or found.kind in wanted}


def is_flat(samples: list[float], allowance: float, growth: float = 1.25) -> bool:
    """Returns whether the last third of some samples lies no higher than the first third, but for an allowance."""
    if len(samples) < 3:
        return True
    third = max(1, len(samples) // 3)
    first, last = sorted(samples[:third])[third // 2], sorted(samples[-third:])[third // 2]
    return last <= first * growth + allowance
