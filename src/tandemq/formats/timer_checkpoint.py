"""RocketMQ 5's checkpoint of timer messages: the file config/timercheck, and what GET_TIMER_CHECK_POINT answers.

    0 lastReadTimeMs 8 | lastTimerLogFlushPos 8 | lastTimerQueueOffset 8 | masterTimerQueueOffset 8
    32 stateVersion 8 | timestamp 8 | counter 8     the data version, which the first releases lack

The file has 4096 bytes, of which the rest is zeros. Messages of the timer topic below masterTimerQueueOffset have been
put into the wheel, and all slots of the wheel before lastReadTimeMs have been delivered.
"""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct

FILE = Path("config") / "timercheck"
SIZE = 4096
_FIELDS = Struct(">7q")
_OLD_SIZE = 32
WAIT_MAX_MS = 3 * 24 * 3600 * 1000
"""A message that waits longer than two days (timerRollWindowSlot) is appended again by then, and its first record may
go; one day more is what RocketMQ's own retention of 72 hours leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCheckpoint:
    """What it says; a broker that keeps no wheel says nothing by zeros."""

    read_ms: int
    """Slots of the wheel before this time have been delivered."""
    seen_below: int
    """Messages of the timer topic below this number have been put into the wheel."""
    in_log_below: int = 0
    """Messages below this number, if they wait, are in the timer log that lies beside it: RocketMQ goes on here. 0
    where there is none, so it looks at all of them. Not decoded: who reads it has no use for it."""
    version: int = 0
    """When it was written, in ms; changes with the rest."""

    def encode(self) -> bytes:
        return _FIELDS.pack(self.read_ms, 0, self.in_log_below, self.seen_below, 0, self.version, 0)

    def encode_file(self) -> bytes:
        return self.encode().ljust(SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "TimerCheckpoint | None":
        """Returns what a file or an answer says, None if it says nothing."""
        if len(data) < _OLD_SIZE:
            return None
        read_ms, _, _, seen_below, _, version, _ = _FIELDS.unpack(data[: _FIELDS.size].ljust(_FIELDS.size, b"\0"))
        if read_ms <= 0 or seen_below < 0:
            return None
        return cls(read_ms=read_ms, seen_below=seen_below, version=version)
