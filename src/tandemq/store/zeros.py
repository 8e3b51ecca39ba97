"""Making a part of a mapped file zero without touching what is zero already.

Pages that were never written may have no blocks: writing there could fail with SIGBUS on a full disk, and would take
room for nothing. A page that holds something has its block.
"""

from tandemq.store.disk import Segment

_CHUNK = 1 << 20
_PAGE = 4096
_ZEROS = bytes(_CHUNK)


def zero(segment: Segment, start: int, stop: int) -> bool:
    """Makes [start, stop) zero. Returns whether anything had to change."""
    changed = False
    view = segment.view
    for data_start, data_stop in segment.data_ranges(start, stop):
        at = data_start
        while at < data_stop:
            end = min(data_stop, at - at % _CHUNK + _CHUNK)
            if view[at:end].tobytes() != _ZEROS[: end - at]:
                _zero_pages(view, at, end)
                changed = True
            at = end
    return changed


def _zero_pages(view: memoryview, start: int, stop: int) -> None:
    while start < stop:
        end = min(stop, start - start % _PAGE + _PAGE)
        if view[start:end].tobytes() != _ZEROS[: end - start]:
            view[start:end] = _ZEROS[: end - start]
        start = end
