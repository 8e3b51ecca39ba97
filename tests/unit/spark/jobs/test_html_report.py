"""A page without scripts or links; time runs along a true axis."""

import re

import pytest

from tandemq.spark.jobs.html_report import bars, lines, number, page, section, table, time_text, with_gaps

T0 = 1_700_000_000_000


def circles(svg: str) -> list[float]:
    return [float(x) for x in re.findall(r'<circle cx="([0-9.]+)"', svg)]


def test_points_stand_where_their_time_is() -> None:
    """Three windows, then a long pause, then one more."""
    svg = lines({"t": [(T0, 1.0), (T0 + 1000, 2.0), (T0 + 10_000, 3.0)]}, "msg/s")
    first, second, last = circles(svg)
    assert (second - first) / (last - first) == pytest.approx(0.1, abs=0.001)
    assert time_text(T0) in svg
    assert time_text(T0 + 10_000) in svg


def test_lines_share_one_axis() -> None:
    """A topic that came late begins late."""
    svg = lines({"early": [(T0, 1.0), (T0 + 10, 1.0)], "late": [(T0 + 10, 1.0)]}, "msg/s")
    found = circles(svg)
    assert found[2] == found[1] > found[0]


def test_windows_without_messages_are_zero_or_interrupt_the_line() -> None:
    points = [(0, 5.0), (10, 6.0), (50, 7.0)]
    assert with_gaps(points, 10, 0.0) == [(0, 5.0), (10, 6.0), (20, 0.0), (40, 0.0), (50, 7.0)]
    assert with_gaps(points, 10, None) == [(0, 5.0), (10, 6.0), (20, None), (50, 7.0)]
    assert with_gaps([(0, 1.0), (20, 1.0)], 10, 0.0) == [(0, 1.0), (10, 0.0), (20, 1.0)]
    assert lines({"t": with_gaps(points, 10, None)}, "ms").count("<polyline") == 2


def test_nothing_to_plot_is_still_a_plot() -> None:
    assert "<svg" in lines({}, "msg/s")
    assert "Nothing to show" in bars([], "msg")
    assert "Nothing to show" in table(["a"], [])


def test_texts_are_escaped() -> None:
    made = page("<t>", "a & b", [section("<s>", table(["<h>"], [["<c>"]])), bars([("<name>", 2.0)], "msg")])
    for text in ("<t>", "<s>", "<h>", "<c>", "<name>"):
        assert text not in made
    assert "a &amp; b" in made


def test_numbers_as_people_read_them() -> None:
    assert [number(value) for value in (None, 1.25, 12345.6, 1234567, True)] == [
        "–",
        "1.2",
        "12,346",
        "1,234,567",
        "True",
    ]
