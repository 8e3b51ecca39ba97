"""How long sends waited, by bucket."""

from tandemq.replication.waits import BOUNDS, WaitHistogram


def test_buckets_are_cumulative_and_take_their_upper_bound() -> None:
    waits = WaitHistogram()
    for seconds in (0.0001, BOUNDS[0], 0.004, 60.0):
        waits.observe(seconds)
    found = dict(waits.cumulative())
    assert found[str(BOUNDS[0])] == 2
    assert found["0.005"] == 3
    assert found[str(BOUNDS[-1])] == 3
    assert found["+Inf"] == 4
    assert waits.seconds == 0.0001 + BOUNDS[0] + 0.004 + 60.0
