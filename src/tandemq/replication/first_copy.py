"""Where a slave of a RocketMQ master begins, so that it gets all the history that master still has.  Pure.

A RocketMQ master sends a slave that reports offset 0 only its last segment; from any other offset it sends exactly what
was asked for.  So an empty slave never reports 0:

- The master's log begins above 0: ours begins there, and we report that offset.
- It begins at 0: its first record is fetched over the broker port and appended; we report where that record ends.

The same look at the master's log finds what its protocol can't tell: a segment size that is not ours, a slave that the
master's retention has overtaken, a master that lost its tail.
"""

from dataclasses import dataclass, replace
from enum import Enum

from tandemq.codec.ha_reasons import Reason
from tandemq.formats.record import PHYSICAL_OFFSET_AT, SIZE_MAGIC, check_record
from tandemq.replication.decisions import LogEnds

NEVER_COMPARED = -1


@dataclass(frozen=True, slots=True)
class MasterLog:
    """The log of a RocketMQ master, as its broker port tells."""

    first: int
    end: int
    segment_size: int = 0
    """0 if it did not say."""


class Step(Enum):
    """What a slave does before it reports its offset."""

    GO_ON = "report what is here"
    BEGIN_AT_FIRST = "begin at the master's first offset"
    FETCH_FIRST_RECORD = "fetch the master's first record"
    REFUSE = "don't follow"


@dataclass(frozen=True, slots=True)
class FirstCopy:
    """A step, and the reason when it is to refuse."""

    step: Step
    reason: Reason = Reason.AHEAD
    text: str = ""


GO_ON = FirstCopy(Step.GO_ON)


def plan_first_copy(own: LogEnds, master: MasterLog, *, last_file_only: bool = False) -> FirstCopy:
    """Decides how the session with this master begins."""
    empty = own.end == own.first
    if master.segment_size not in (0, own.segment_size):
        return FirstCopy(
            Step.REFUSE,
            Reason.SEGMENT_SIZE,
            f"the master's log has files of mappedFileSizeCommitLog={master.segment_size} bytes, ours of "
            f"{own.segment_size}",
        )
    if not empty and own.end > master.end:
        return FirstCopy(
            Step.REFUSE,
            Reason.AHEAD,
            f"this log ends at {own.end}, the RocketMQ master's at {master.end}: the master lost its tail, or this is "
            "another log, and its protocol can't tell which bytes agree",
        )
    if own.end < master.first and not (last_file_only and empty):
        return FirstCopy(Step.BEGIN_AT_FIRST)
    if empty and own.end == 0 and master.first == 0 < master.end and not last_file_only:
        return FirstCopy(Step.FETCH_FIRST_RECORD)
    return GO_ON


def lacking(
    own_first: int,
    master_first: int,
    known: tuple[int, int] | None,
    *,
    last_file_only: bool,
    is_first_contact: bool = False,
) -> tuple[int, int] | None:
    """Returns what a log lacks of its master's retained history because it never had it.

    It was begun with the last file only, by us or by the RocketMQ slave whose store it was: that one shows when the two
    logs are compared for the first time. Retention of its own, which may run a little before the master's, is no lack.
    """
    if own_first <= master_first:
        return None
    return (master_first, own_first) if last_file_only or known is not None or is_first_contact else None


def wrong_first_record(data: bytes) -> str:
    """Returns why these bytes are not the record at offset 0 of a log; empty if they are."""
    if len(data) < PHYSICAL_OFFSET_AT + 8:
        return f"{len(data)} bytes are no record"
    size = SIZE_MAGIC.unpack_from(data)[0]
    if size != len(data):
        return f"the record has {size} bytes, {len(data)} came"
    at = int.from_bytes(data[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big")
    if at != 0:
        return f"the record stands at offset {at}, not at 0"
    return check_record(data, 0, len(data)) or ""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a slave remembers of its RocketMQ master's log, also when that master is gone."""

    lacks: tuple[int, int] | None = None
    """[start, stop) of the master's retained log that was never copied; see `lacking`."""
    goal: int = NEVER_COMPARED
    """Where the master's log ended when a copy of it began that has not come so far yet; 0 when it has."""


class CopyProgress:
    """How far a slave of a RocketMQ master is behind it, from what the master tells every few seconds."""

    def __init__(self, compared: Compared | None = None) -> None:
        self.master: MasterLog | None = None
        self.compared = compared or Compared()
        self.lag_bytes = 0
        self.seconds_left: float | None = None
        """How long the rest takes at the rate since the last look; 0 when there is none, None while it is not known."""
        self._end = 0
        self._noted_at: float | None = None
        self._behind_since: float | None = None
        self._whole_at: float | None = None

    def begins(self, own: LogEnds, master: MasterLog, *, last_file_only: bool) -> None:
        """Prepares for a session with this master, which is about to begin with this log."""
        self._compare(own, master, last_file_only=last_file_only)
        if own.end < master.end:
            self.compared = replace(self.compared, goal=master.end)

    def _compare(self, own: LogEnds, master: MasterLog, *, last_file_only: bool) -> None:
        known = self.compared
        if own.end > own.first:
            lacks = lacking(
                own.first,
                master.first,
                known.lacks,
                last_file_only=last_file_only,
                is_first_contact=known.goal == NEVER_COMPARED,
            )
            goal = 0 if own.end >= known.goal else known.goal
            self.compared = Compared(lacks, goal)

    def known_end(self) -> int:
        """Returns the furthest end of the master's log that this slave knows of; 0 if it was told none."""
        return max(self.compared.goal, self.master.end if self.master is not None else 0)

    def note(self, now: float, own: LogEnds, master: MasterLog, *, last_file_only: bool = False) -> None:
        """Takes what the master has just told about its log."""
        self._compare(own, master, last_file_only=last_file_only)
        own_end = own.end
        self.lag_bytes = max(0, master.end - own_end)
        if self.lag_bytes == 0:
            self._whole_at, self._behind_since, self.seconds_left = now, None, 0.0
        else:
            if self._behind_since is None:
                self._behind_since = self._whole_at if self._whole_at is not None else now
            self.seconds_left = self._left(now, own_end)
        self.master, self._end, self._noted_at = master, own_end, now

    def _left(self, now: float, own_end: int) -> float | None:
        if self._noted_at is None or now <= self._noted_at or own_end <= self._end:
            return None
        return self.lag_bytes / ((own_end - self._end) / (now - self._noted_at))

    def lag_ms(self, now: float) -> int:
        """Returns how long ago it last had everything; 0 while it does."""
        return int((now - self._behind_since) * 1000) if self._behind_since is not None else 0
