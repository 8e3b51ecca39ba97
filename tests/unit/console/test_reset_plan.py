"""Moving a group: before and after of every queue, never beyond what the queue holds."""

import pytest

from tandemq.console.reset_plan import plan
from tandemq.model.topic import QueueRef

ONE, TWO = QueueRef("t", "a", 0), QueueRef("t", "a", 1)
RANGES = {ONE: (10, 100), TWO: (0, 50)}
OFFSETS = {ONE: 60}


@pytest.mark.parametrize(
    ("how", "amount", "after"),
    [
        ("earliest", 0, [10, 0]), ("latest", 0, [100, 50]), ("offset", 70, [70, 50]), ("offset", 5, [10, 5]),
        ("shift", -20, [40, 0]), ("shift", 1000, [100, 50]), ("shift", -1000, [10, 0]),
    ],
)  # fmt: skip
def test_targets_stay_within_the_queue(how: str, amount: int, after: list[int]) -> None:
    assert [step.after for step in plan(RANGES, OFFSETS, how, amount)] == after


def test_a_time_has_an_offset_on_each_queue() -> None:
    steps = plan(RANGES, OFFSETS, "time", at_time={ONE: 33})
    assert [step.after for step in steps] == [33, 50]
    assert (steps[0].moved, steps[0].lag_after, steps[0].name) == (-27, 67, "a/0")
