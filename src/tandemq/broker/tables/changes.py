"""Which keys of a table changed, in order: whoever knows the table up to some number learns what came after it.

Every change gets the next number. Of a key only the newest change is kept, and of all keys the newest KEYS_MAX;
a reader that knows less than that reads the whole table. Numbers start anew with every start of the broker; a mark
names the run as well, for readers elsewhere.
"""

import secrets
from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

KEYS_MAX = 32_768

Key = TypeVar("Key", bound=Hashable)


class Changes(Generic[Key]):
    """The newest changes of one table. A deleted key is noted like any other; its entry is no longer in the table."""

    __slots__ = ("_at", "_keys_max", "_run", "count", "forgotten")

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._run = secrets.token_hex(4)
        self._at: dict[Key, int] = {}
        """key -> number of its newest change, in ascending order of numbers"""
        self.count = 0
        """The number of the newest change."""
        self.forgotten = 0
        """Changes up to this number may not be listed any more."""

    def note(self, key: Key) -> None:
        """Takes note that the entry under this key is new, different or gone."""
        at = self._at
        at.pop(key, None)
        self.count += 1
        at[key] = self.count
        if len(at) > 2 * self._keys_max:
            self._forget()

    def since(self, number: int) -> list[Key] | None:
        """Returns the keys that changed after `number`, oldest change first; None when they are not all known."""
        if number < self.forgotten or number > self.count:
            return None
        found = []
        for key, changed_at in reversed(self._at.items()):
            if changed_at <= number:
                break
            found.append(key)
        found.reverse()
        return found

    @property
    def mark(self) -> str:
        """What a reader elsewhere has who reads the table now."""
        return f"{self._run}.{self.count}"

    def since_mark(self, mark: str) -> list[Key] | None:
        """Returns the keys that changed after a mark; None when it is of another run or they are not all known."""
        run, _, number = mark.rpartition(".")
        return self.since(int(number)) if run == self._run and number.isdecimal() and len(number) < 20 else None

    def replaced(self) -> None:
        """Takes note that everything may be different."""
        self.count += 1
        self.forgotten = self.count
        self._at.clear()

    def _forget(self) -> None:
        kept = list(islice(reversed(self._at.items()), self._keys_max))
        self.forgotten = kept[-1][1] - 1
        self._at = dict(reversed(kept))
