"""Progress of delayed messages: for each level the next message to deliver and when it is due. Pure but for `wall_ms`.

A delayed message lies in SCHEDULE_TOPIC_XXXX, one queue for each level (`formats/envelope.py`). All messages of a level
wait equally long, so a queue is in the order of due times and only its head matters.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tandemq.codec import bodies
from tandemq.model.topic import DataVersion

POSITION = "logPosition"
"""Member of delayOffset.json: the position of the log at which it is true."""
MARKS_MAX = 1024
"""Positions of a level that wait for a flush; beyond it the newest one stands for several."""


class DelaySchedule:
    """The progress of every level. Levels count from 1, as in the DELAY property; the queue id is level - 1."""

    def __init__(self, delays_ms: tuple[int, ...], wall_ms: Callable[[], int]) -> None:
        self.delays_ms = delays_ms
        self._levels = len(delays_ms)
        self._wall_ms = wall_ms
        self._offsets: dict[int, int] = {}
        """level -> queue offset of the next message to deliver"""
        self._due: dict[int, int] = {}
        """level -> when its head is due (wall ms), for the levels that are known to have messages"""
        self._marks: dict[int, deque[tuple[int, int]]] = {}
        """level -> (queue offset reached, physical end of the newest copy below it), oldest first"""
        self._durable: dict[int, int] = {}
        """level -> offset below which every delivered copy is on disk: what delayOffset.json may say"""
        self._position = 0
        """Below it lie the copies that `_durable` speaks of."""
        self.is_foreign = False
        """What is known comes from a RocketMQ broker, which writes no progress into the log."""
        self.version = DataVersion(0, wall_ms(), 0)
        self.dirty = False
        self.on_change: Callable[[], None] | None = None

    @property
    def levels(self) -> range:
        """Those of messageDelayLevel, and those above it in which messages may wait since it was shortened."""
        return range(1, self._levels + 1)

    def cover(self, level: int) -> None:
        """Takes care of levels up to this one, too: messages wait there."""
        self._levels = max(self._levels, level)

    def _delay_ms(self, level: int) -> int:
        """Returns how long a level waits; one above the last waits as long as the last, as a new message would."""
        return self.delays_ms[min(level, len(self.delays_ms)) - 1]

    def offset(self, level: int) -> int:
        return self._offsets.get(level, 0)

    def due_at(self, level: int, store_timestamp: int, now_ms: int) -> int:
        """Returns when a message is due.

        One that is further ahead than the whole delay of its level (a clock went back) is due now.
        """
        delay_ms = self._delay_ms(level)
        due = store_timestamp + delay_ms
        return now_ms if due > now_ms + delay_ms else due

    def head_is(self, level: int, due_ms: int) -> None:
        """Notes when the message at the level's offset is due."""
        self._due[level] = due_ms

    def head_is_unknown(self, level: int) -> None:
        """Forgets the due time of a level: it has no message, or a new one whose time must be read."""
        self._due.pop(level, None)

    def knows_head(self, level: int) -> bool:
        return level in self._due

    def due_levels(self, now_ms: int) -> list[int]:
        """Returns the levels whose head is due, the longest overdue first."""
        return sorted((level for level, due in self._due.items() if due <= now_ms), key=self._due.__getitem__)

    def next_due(self) -> int | None:
        """Returns the earliest due time of all heads (wall ms), None if no level has a message."""
        return min(self._due.values(), default=None)

    def move_to(self, level: int, offset: int, copy_end: int) -> None:
        """Moves a level on: copies of everything below `offset` are in the log, the last ends at `copy_end`."""
        self._offsets[level] = offset
        self.head_is_unknown(level)
        marks = self._marks.setdefault(level, deque())
        if len(marks) >= MARKS_MAX or (marks and marks[-1][1] == copy_end):
            marks.pop()  # a coarser mark is still true: it only becomes durable later
        marks.append((offset, copy_end))
        self.version = self.version.next(self._wall_ms())
        self.dirty = True
        if self.on_change is not None:
            self.on_change()

    @property
    def offsets(self) -> Mapping[int, int]:
        """Returns level -> the next message to deliver; read only."""
        return self._offsets

    def begin(self, told: Mapping[int, int] | None, end_of: Callable[[int], int]) -> None:
        """Goes on from what the log tells, None if it tells nothing, and not beyond the end of a level's queue.

        What a file or another broker told may be ahead of this log: messages would wait for ever. It counts where the
        log tells nothing, and where a RocketMQ broker has gone on since.
        """
        offsets = dict(self._offsets)
        if told is not None:
            more = offsets if self.is_foreign else {}
            offsets = {level: max(told.get(level, 0), more.get(level, 0)) for level in {*told, *more}}
        offsets = {level: min(offset, end_of(level)) for level, offset in offsets.items()}
        self.is_foreign = False
        if offsets != self._offsets:
            self.version = self.version.next(self._wall_ms())
            self.dirty = True
        self._offsets, self._durable = offsets, dict(offsets)
        self._due.clear()
        self._marks.clear()

    def flushed(self, physical_offset: int) -> None:
        """Takes note that the log is on disk up to here: offsets whose copies lie below may be saved."""
        self._position = physical_offset
        for level, marks in self._marks.items():
            while marks and marks[0][1] <= physical_offset:
                self._durable[level] = marks.popleft()[0]

    def snapshot(self, *, durable: bool = False) -> dict[str, Any]:
        """Returns the content of delayOffset.json (`durable`) or of GET_ALL_DELAY_OFFSET; its keys stay unquoted."""
        offsets = self._durable if durable else self._offsets
        found: dict[str, Any] = {
            "dataVersion": bodies.data_version_json(self.version),
            "offsetTable": dict(sorted(offsets.items())),
        }
        if durable and not self.is_foreign:
            found[POSITION] = self._position  # RocketMQ does not know it and leaves it out of what it writes
        return found

    def load(self, snapshot: Mapping[str, Any], position: int | None = None) -> None:
        """Takes over delayOffset.json, or the master's. Keeps levels beyond ours for a longer messageDelayLevel.

        `position`: where the log was when a master of ours said so; None for a file, which has it in itself.
        """
        told = snapshot.get(POSITION) if position is None else position
        self.is_foreign = not isinstance(told, int)
        self._position = told if isinstance(told, int) else 0
        table = bodies.int_map_of(snapshot.get("offsetTable"), "offsetTable")
        offsets = {level: bodies.int_of({"offset": told}, "offset") for level, told in table.items()}
        self._offsets = {level: offset for level, offset in offsets.items() if level > 0 and offset >= 0}
        self._durable = dict(self._offsets)
        self._due.clear()
        self._marks.clear()
        if snapshot.get("dataVersion"):
            self.version = bodies.data_version_of(snapshot["dataVersion"])
