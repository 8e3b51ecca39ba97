"""Clocks that somebody else moves."""

from tandemq.sim.clock import ManualClock, ShiftedClock


def test_both_times_advance_together() -> None:
    clock = ManualClock(wall_ms=5_000, monotonic=1.0)
    clock.advance(2.5)
    assert (clock.wall_ms(), clock.monotonic()) == (7_500, 3.5)


def test_a_clock_that_is_set_moves_wall_time_only() -> None:
    clock = ManualClock(wall_ms=5_000, monotonic=1.0)
    clock.jump_wall(-3_000)
    assert (clock.wall_ms(), clock.monotonic()) == (2_000, 1.0)


def test_a_shifted_clock_tells_another_wall_time_than_the_machine() -> None:
    clock = ShiftedClock()
    before = clock.wall_ms()
    clock.shift_ms = 3_600_000
    assert clock.wall_ms() - before >= 3_600_000
