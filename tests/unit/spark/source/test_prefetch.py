"""The next batch is decoded while Spark takes the last one, where that pays."""

import threading
from typing import Any

import pytest

from tandemq.sim.clock import ManualClock
from tandemq.spark.options import Prefetch
from tandemq.spark.source.prefetch import IdleProcessors, handed_over, prefetched


@pytest.mark.parametrize(("idle", "ahead"), [(0.9, True), (0.2, False)])
def test_batches_are_prepared_ahead_only_while_a_processor_is_idle(idle: float, ahead: bool) -> None:
    """A task that shares a busy machine decodes in its own thread."""
    clock = ManualClock()
    made: list[int] = []

    def numbers() -> Any:
        for number in range(6):
            made.append(threading.get_ident())
            yield number

    stream = handed_over(numbers(), Prefetch.AUTO, IdleProcessors(clock, lambda: idle * clock.monotonic()))
    assert next(stream) == 0
    clock.advance(1.0)
    assert list(stream) == [1, 2, 3, 4, 5]
    assert made[0] == threading.get_ident()
    assert (made[-1] != threading.get_ident()) is ahead


def test_prefetching_keeps_order_errors_and_ends_with_its_reader() -> None:
    """A thread ahead by one item; closing early stops it."""

    def numbers() -> Any:
        yield from range(5)
        raise ValueError("the sixth")

    stream = prefetched(numbers())
    assert [next(stream) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="the sixth"):
        next(stream)
    endless = prefetched(iter(range(10**9)))
    assert next(endless) == 0
    endless.close()  # type: ignore[attr-defined]
