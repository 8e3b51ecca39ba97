"""The window of a picture grows at once and shrinks late; places are percentages of it."""

from tandemq.console.axis import SHRINK_SECONDS, Window, path, percent, step_for

KIB = 1024


def test_windows_have_steps() -> None:
    assert [step_for(size) for size in (0, 64 * KIB, 64 * KIB + 1, 5 << 30)] == [64 * KIB, 64 * KIB, 1 << 20, 8 << 30]


def test_a_window_grows_at_once_and_shrinks_only_when_half_was_not_needed_for_a_while() -> None:
    window = Window()
    assert window.show(100 * KIB, now=0) == 1 << 20
    assert window.show(0, now=1) == 1 << 20
    assert window.show(600 * KIB, now=20) == 1 << 20  # needed again: the wait begins anew
    assert window.show(0, now=21) == 1 << 20
    assert window.show(0, now=21 + SHRINK_SECONDS - 1) == 1 << 20
    assert window.show(0, now=21 + SHRINK_SECONDS) == 64 * KIB


def test_a_place_before_the_window_is_at_its_left_edge() -> None:
    assert percent(1000, 1000, 500) == 100
    assert percent(750, 1000, 500) == 50
    assert percent(10, 1000, 500) == 0
    assert percent(None, 1000, 500) == 0


def test_a_value_that_is_not_known_breaks_the_line() -> None:
    assert path([1, 2, None, 1, 2]).count("M") == 2
    assert path([None, 3]) == ""
