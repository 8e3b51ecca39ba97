"""Making a part of a mapped file zero without touching what is zero already.

Pages that were never written may have no blocks: writing there could fail with SIGBUS on a full disk, and would take
room for nothing. A page that holds something has its block.
"""

_CHUNK = 1 << 20
_PAGE = 4096
_ZEROS = bytes(_CHUNK)


def zero(view: memoryview, start: int, stop: int) -> bool:
    """Makes [start, stop) zero; whether anything had to change."""
    changed = False
    while start < stop:
        end = min(stop, start - start % _CHUNK + _CHUNK)
        if view[start:end].tobytes() != _ZEROS[: end - start]:
            _zero_pages(view, start, end)
            changed = True
        start = end
    return changed


def _zero_pages(view: memoryview, start: int, stop: int) -> None:
    while start < stop:
        end = min(stop, start - start % _PAGE + _PAGE)
        if view[start:end].tobytes() != _ZEROS[: end - start]:
            view[start:end] = _ZEROS[: end - start]
        start = end
