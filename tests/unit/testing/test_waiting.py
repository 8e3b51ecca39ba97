"""`until` returns what its condition found, passes on what it must not see, and says what was missing."""

import asyncio

import pytest

from tandemq.testing import waiting
from tandemq.testing.waiting import until, wait_until


def after(calls: int, value: object = True) -> "Counted":
    return Counted(calls, value)


class Counted:
    """True from a certain call on."""

    def __init__(self, calls: int, value: object) -> None:
        self.left, self.value = calls, value

    def __call__(self) -> object:
        self.left -= 1
        return self.value if self.left < 0 else None


def test_the_value_that_came_true_is_returned() -> None:
    assert wait_until(after(30, "found")) == "found"
    assert asyncio.run(until(after(30, "found"))) == "found"


def test_a_coroutine_function_is_a_condition() -> None:
    counted = after(3, 7)

    async def condition() -> object:
        return counted()

    assert asyncio.run(until(condition)) == 7


def test_an_ignored_exception_means_not_yet() -> None:
    counted = after(3)

    def condition() -> bool:
        if counted() is None:
            raise KeyError("soon")
        return True

    assert wait_until(condition, ignoring=(KeyError,))


def test_any_other_exception_ends_the_wait() -> None:
    def condition() -> bool:
        raise AssertionError("seen what must not be seen")

    with pytest.raises(AssertionError, match="must not be seen"):
        asyncio.run(until(condition))


def test_a_condition_that_never_comes_true_is_told() -> None:
    def fails() -> bool:
        raise KeyError("away")

    with pytest.raises(AssertionError, match="waited 0 s for: rain"):
        wait_until(lambda: False, "rain", seconds=0)
    with pytest.raises(AssertionError, match=r"only sun; the last trouble was KeyError\('away'\)"):
        asyncio.run(until(fails, lambda: "only sun", seconds=0, ignoring=(KeyError,)))


def test_a_wait_of_any_length_has_a_pause() -> None:
    """After some thousand looks the pause, doubled each time, was too large for a number."""
    assert waiting._pause(0) == 0.0
    assert 0 < waiting._pause(100) <= waiting._pause(1_000_000) <= 1.0
