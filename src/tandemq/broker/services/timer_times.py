"""When the timer messages in a part of the log are due: of a million of them within a second or two. Pure.

Decoding a whole record to learn one of its properties takes ten times as long, which a broker that starts with as many
timers can't afford: messages that became due meanwhile wait for it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from struct import Struct

from tandemq.broker.services.timer_copies import OUT_MS, RECALLED, ROLL_TIMES
from tandemq.broker.services.timer_heap import OFFSET_BITS
from tandemq.formats.record import MAGIC_V1, parse_record
from tandemq.model.message import BORN_HOST_V6, STORE_HOST_V6, StoredMessage

_NAMED = b"\x02" + OUT_MS.encode() + b"\x01"
_MARKS = (ROLL_TIMES.encode(), RECALLED.encode())
_HEAD = Struct(">iI 12x q 8x i 16x q 20x i")
"""Size, magic, queue offset, system flag, store timestamp and size of the body of a record whose hosts are IPv4."""
_V6 = BORN_HOST_V6 | STORE_HOST_V6
DIGITS_MAX = 15


def out_ms(message: StoredMessage) -> int | None:
    """Returns when the message is due, None if it does not say."""
    text = message.properties.get(OUT_MS, "")
    return int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else None


@dataclass(slots=True)
class Times:
    """What a part of the timers' queue says."""

    waiting: list[int] = field(default_factory=list)
    """When each message that is not settled comes up, as `TimerHeap` takes it, in order of the queue."""
    overdue: list[tuple[StoredMessage, int]] = field(default_factory=list)
    """(message, time) of those among them whose time has passed."""
    marked: list[StoredMessage] = field(default_factory=list)
    """Messages that may say that others are not to be delivered."""


def times_in(
    slices: Iterable[memoryview],
    *,
    wait_max_ms: int,
    overdue_ms: int = 0,
    is_settled: Callable[[int, int], bool] | None = None,
) -> Times:
    """Reads whole records. None comes up later than `wait_max_ms` after it was stored.

    `is_settled(queue offset, time)` tells which were delivered; `overdue_ms`: times up to then have passed.
    """
    found = Times()
    waiting = found.waiting
    head_of, head_size, named_size, magic_v1 = _HEAD.unpack_from, _HEAD.size, len(_NAMED), MAGIC_V1
    for part in slices:
        data = bytes(part)
        find, rfind = data.find, data.rfind
        start, whole = 0, len(data)
        has_marks = any(mark in data for mark in _MARKS)
        while start < whole:
            size, magic, queue_offset, sys_flag, stored_at, body_size = head_of(data, start)
            stop = start + size
            # Properties are the last part of a record, and the broker adds this one behind the sender's.
            at = rfind(_NAMED, start, stop)
            end = find(b"\x02", at + named_size, stop)
            if at < start + head_size + body_size or end < 0 or sys_flag & _V6 or magic != magic_v1:
                message = parse_record(part, start, stop)
                due, queue_offset, stored_at = out_ms(message), message.queue_offset, message.store_timestamp
            else:
                text = data[at + named_size : end]
                due = int(text) if text.isdigit() and len(text) <= DIGITS_MAX else None
            if due is not None:
                if has_marks and any(find(mark, start, stop) >= 0 for mark in _MARKS):
                    found.marked.append(parse_record(part, start, stop))
                latest = stored_at + wait_max_ms
                comes_up = due if due < latest else latest
                if is_settled is None or not is_settled(queue_offset, comes_up):
                    waiting.append((comes_up << OFFSET_BITS) + queue_offset)
                    if due <= overdue_ms:
                        found.overdue.append((parse_record(part, start, stop), comes_up))
            start = stop
    return found
