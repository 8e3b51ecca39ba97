"""What RocketMQ 5 needs beside the log to go on with timer messages: `timerlog/`, of which it makes `timerwheel` anew.

A file of the timer log holds units of 52 bytes, of messages in the order of their numbers, then zeros:

    size 4 (52) | position of the unit before it in its slot, -1 for none 8 | magic 4 | time of writing 8
    | delay after that 4 | physical offset 8 | size of the record 4 | hash of the topic 4 | reserved 8

A slot is a second. RocketMQ reads the last file when it starts and puts its units into the wheel; it goes on with the
message after the one that the last unit names. So a unit in the past ends the file, if the newest message does not
wait.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

UNIT = Struct(">iqiqiqiiq")
FILE_SIZE = 100 << 20
"""mappedFileSizeTimerLog, as it is unless somebody sets it."""
PRECISION_MS = 1000
ONCE, AGAIN = 1, 3
"""Magics: to be delivered, and to be appended again because its time is further away."""


class Waiting(NamedTuple):
    """A message in the timer topic."""

    due_ms: int
    physical_offset: int
    size: int
    is_far: bool = False
    """It is only appended again at this time."""


def slot_of(time_ms: int) -> int:
    return time_ms // PRECISION_MS * PRECISION_MS


def encode_timer_log(waiting: Iterable[Waiting], last: Waiting | None, now_ms: int) -> bytes:
    """Returns the units of what waits, in the order of the log, and of `last`, the newest message of the topic."""
    slots: dict[int, int] = {}
    units = bytearray()

    def put(message: Waiting, slot: int) -> None:
        position = len(units)
        units.extend(
            UNIT.pack(
                UNIT.size, slots.get(slot, -1), AGAIN if message.is_far else ONCE, slot_of(now_ms),
                slot - slot_of(now_ms), message.physical_offset, message.size, 0, 0,
            )
        )  # fmt: skip
        slots[slot] = position

    newest = -1
    for message in waiting:
        put(message, max(slot_of(message.due_ms), slot_of(now_ms)))
        newest = message.physical_offset
    if last is not None and last.physical_offset != newest:
        put(last, slot_of(now_ms) - 60 * PRECISION_MS)
    return bytes(units)
