"""Waiting between tries blocks for as long as it is told."""

from tandemq.clock import SystemClock
from tandemq.spark.runtime.pause import pause


def test_a_pause_takes_its_time_and_none_takes_none() -> None:
    clock = SystemClock()
    begin = clock.monotonic()
    pause(0)
    pause(0.001)
    assert clock.monotonic() - begin >= 0.001
