"""How far a master's services had come, said by the log itself: a small record that is true at its own position.

It lies in queue 1 of the topic of marks (`log_mark.py`); its body is a JSON object:

    {"kind": "progress", "delay": {"3": 17}, "half": 5, "op": 4}

The copies of all delayed messages of level 3 below number 17 lie before this record; so does whatever became of half
messages below number 5, and op records below number 4 name only such. Whoever opens goes on from the newest such record
of its log, which can't be ahead of it, whatever was cut: the last deliveries come twice, none is skipped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

PROGRESS_QUEUE = 1
"""Of LOG_MARK_TOPIC."""
_KIND = "progress"


@dataclass(frozen=True, slots=True)
class ServiceProgress:
    """Numbers of queues: everything below is done."""

    delay: Mapping[int, int] = field(default_factory=dict)
    """Delay level -> the next message to deliver."""
    half: int = 0
    op: int = 0

    def encode(self) -> bytes:
        delay = {str(level): offset for level, offset in sorted(self.delay.items())}
        return msgspec.json.encode({"kind": _KIND, "delay": delay, "half": self.half, "op": self.op})

    @classmethod
    def decode(cls, body: bytes | memoryview) -> "ServiceProgress | None":
        """Returns what a record's body says; None for what this version does not know."""
        try:
            content: Any = msgspec.json.decode(body)
            if content["kind"] != _KIND:
                return None
            delay = {int(level): int(offset) for level, offset in content["delay"].items()}
            found = cls(delay, int(content["half"]), int(content["op"]))
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError):
            return None
        return found if min((found.half, found.op, *delay.values())) >= 0 else None
