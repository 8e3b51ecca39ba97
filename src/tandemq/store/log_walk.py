"""Walks the whole records of one log file and says what lies between them: for tools that show damaged logs."""

from collections.abc import Iterator
from dataclasses import dataclass

from tandemq.formats.record import HEAD, MAGIC_BLANK, SIZE_MAGIC, check_record
from tandemq.formats.record_starts import resynchronise

_WINDOW = 16 << 20
"""Bytes searched at a time; also the largest record that is found after a damage."""


@dataclass(frozen=True, slots=True)
class Damage:
    """No whole record begins at a position; the next one begins at `after`, or there is none in this file."""

    problem: str
    after: int | None


def whole_records(view: memoryview, base: int, at: int = 0) -> Iterator[tuple[int, Damage | None]]:
    """Yields positions in a file that begins at offset `base`: with None for a whole record, else with the damage.

    The walk ends at the blank that fills a file, or with a damage after which the file has no more records: zeros where
    the log ends count as one, too.
    """
    while True:
        if len(view) - at >= SIZE_MAGIC.size:
            size, magic = SIZE_MAGIC.unpack_from(view, at)
            if magic == MAGIC_BLANK and at + size == len(view):
                return
        problem = check_record(view, at, len(view))
        if problem is None and HEAD.unpack_from(view, at)[6] != base + at:
            problem = f"it says it lies at {HEAD.unpack_from(view, at)[6]}"
        if problem is None:
            yield at, None
            at += HEAD.unpack_from(view, at)[0]
            continue
        after = _next_record(view, at + 1, base)
        yield at, Damage(problem, after)
        if after is None:
            return
        at = after


def _next_record(view: memoryview, start: int, base: int) -> int | None:
    for begin in range(start, len(view), _WINDOW):
        piece = view[begin : begin + 2 * _WINDOW].tobytes()
        found = resynchronise(piece, 0, min(_WINDOW, len(piece)), len(piece), base + begin)
        if found is not None:
            return begin + found
    return None
