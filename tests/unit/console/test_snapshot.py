"""The last minutes of a figure: bounded, and a peak is not left out."""

from tandemq.console.snapshot import HISTORY, Series


def test_the_past_is_bounded_and_peaks_are_kept() -> None:
    series = Series()
    for number in range(HISTORY + 10):
        series.add(number, 100.0 if number == 500 else 1.0)
    assert len(series.values) == HISTORY
    assert max(value or 0 for value in series.thinned(60)) == 100.0
    assert len(series.thinned(60)) == 60
    assert series.peak == 100.0
