"""Zeroing touches only what is not zero: a page without a block on a full disk must not be written."""

from collections.abc import Iterator

import pytest

from tandemq.store.zeros import zero

PAGE = 4096


class Watched:
    """A segment that remembers which bytes were assigned, and that has holes."""

    def __init__(self, data: bytearray, holes: tuple[tuple[int, int], ...] = ()) -> None:
        self.data = data
        self.size = len(data)
        self._ranges = holes
        self.view = memoryview(data)

    def data_ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        at = start
        for hole_start, hole_stop in self._ranges:
            if at < hole_start:
                yield at, min(hole_start, stop)
            at = max(at, hole_stop)
        if at < stop:
            yield at, stop


@pytest.mark.parametrize(("start", "stop"), [(0, 3 * PAGE), (1, 3 * PAGE - 1), (PAGE, 2 * PAGE), (5, 6), (7, 7)])
def test_the_range_becomes_zero_and_nothing_else(start: int, stop: int) -> None:
    segment = Watched(bytearray(b"\x01" * 3 * PAGE))
    assert zero(segment, start, stop) is (start < stop)  # type: ignore[arg-type]
    expected = b"\x01" * start + bytes(stop - start) + b"\x01" * (3 * PAGE - stop)
    assert bytes(segment.data) == expected


def test_zeros_are_left_alone() -> None:
    """Nothing is written where all is zero: such a view may even be read-only."""
    segment = Watched(bytearray(3 * PAGE))
    segment.view = segment.view.toreadonly()
    assert zero(segment, 0, 3 * PAGE) is False  # type: ignore[arg-type]


def test_only_pages_that_hold_something_are_written() -> None:
    """A chunk of a mebibyte is compared at once, and then page by page."""
    data = bytearray(2 << 20)
    data[5 * PAGE + 17] = 1
    segment = Watched(data)
    assert zero(segment, 0, len(data))  # type: ignore[arg-type]
    assert not any(data)


def test_holes_of_the_file_are_not_read() -> None:
    data = bytearray(b"\x01" * 4 * PAGE)
    segment = Watched(data, holes=((PAGE, 3 * PAGE),))
    zero(segment, 0, 4 * PAGE)  # type: ignore[arg-type]
    assert bytes(data) == bytes(PAGE) + b"\x01" * 2 * PAGE + bytes(PAGE)
