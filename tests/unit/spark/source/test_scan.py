"""Ranges of a log cover it once, wherever it is cut. Damage and whole stores: test_store_files."""

import pytest

from tandemq.spark.source.scan import RUN_BYTES, plan_ranges, runs
from tandemq.spark.source.store_files import Segment

SEGMENTS = [Segment(0, 1000, "a"), Segment(1000, 1000, "b"), Segment(2000, 1000, "c")]


@pytest.mark.parametrize("size_max", [1, 7, 300, 999, 1000, 10_000])
@pytest.mark.parametrize(("start", "stop"), [(0, 3000), (150, 2050), (1000, 2000), (40, 40)])
def test_ranges_cover_every_byte_once_and_none_spans_segments(start: int, stop: int, size_max: int) -> None:
    ranges = plan_ranges("s", SEGMENTS, start, stop, size_max)
    covered = [offset for piece in ranges for offset in range(piece.start, piece.stop)]
    assert covered == list(range(start, stop))
    for piece in ranges:
        assert piece.segment.start <= piece.start < piece.stop <= piece.segment.stop
        assert piece.size <= size_max
        assert piece.limit == min(stop, piece.segment.stop)


def test_only_the_edges_of_a_segments_part_are_known_to_be_records() -> None:
    first, middle, last = plan_ranges("s", SEGMENTS[:1], 0, 900, 300)
    assert [piece.starts_at_record for piece in (first, middle, last)] == [True, False, False]
    assert [piece.stops_at_record for piece in (first, middle, last)] == [False, False, True]


def test_runs_are_bounded_and_complete() -> None:
    import numpy as np

    positions = np.array([0, 10, RUN_BYTES - 1, RUN_BYTES, 5 * RUN_BYTES])
    assert [run.tolist() for run in runs(positions)] == [[0, 10, RUN_BYTES - 1], [RUN_BYTES], [5 * RUN_BYTES]]
