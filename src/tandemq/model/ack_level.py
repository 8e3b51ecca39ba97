"""How many copies of a message an acknowledgement stands for, and whether they must be on disk."""

from dataclasses import dataclass
from typing import Final, Literal

from tandemq.errors import ConfigError

Copies = int | Literal["majority", "all"]

COPIES_MAX: Final = 64
"""More than any group has; bounds the number of queues of waiters that a message property can create."""


@dataclass(frozen=True, slots=True)
class AckLevel:
    """How many copies, the master's own included, and whether they must be on disk."""

    copies: Copies
    durable: bool = False

    def __str__(self) -> str:
        return f"{self.copies}:durable" if self.durable else str(self.copies)

    def needed(self, group_size: int) -> int:
        """Returns the number of copies in a group of `group_size` nodes."""
        if self.copies == "majority":
            return group_size // 2 + 1
        return group_size if self.copies == "all" else self.copies


def parse_level(text: str) -> AckLevel:
    """Parses `"2"`, `"majority"`, `"all"`, each optionally with `:durable`; `"async"` is one copy, `"sync"` two.

    `+disk` is an older spelling of `:durable`.
    """
    count, _, suffix = text.strip().lower().replace("+disk", ":durable").partition(":")
    if suffix in ("", "durable"):
        durable = suffix == "durable"
        if count in ("majority", "all"):
            return AckLevel("majority" if count == "majority" else "all", durable)
        count = {"async": "1", "sync": "2"}.get(count, count)
        if count.isdecimal() and 1 <= int(count) <= COPIES_MAX:
            return AckLevel(int(count), durable)
    raise ConfigError(
        f"ack level {text!r}: must be a number of copies from 1 to {COPIES_MAX}, majority or all, "
        "optionally followed by :durable (for example 2, majority, all:durable)"
    )
