"""A query whose Python process starts too late on a busy machine is started again."""

from typing import Any

import pytest

from tandemq.spark.runtime.query_start import started


class Writer:
    """Starts queries that end as listed: an error's text, or "" for a good one."""

    def __init__(self, *ends: str) -> None:
        self._ends = list(ends)
        self.starts = 0

    def start(self) -> "Writer":
        self.starts += 1
        return self

    @property
    def isActive(self) -> bool:
        return True

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return None if self._ends[self.starts - 1] else {}

    def awaitTermination(self, seconds: float) -> bool:
        raise RuntimeError(self._ends[self.starts - 1])


LATE = "[STREAM_FAILED] terminated with exception: Python worker failed to connect back."


def test_a_query_whose_process_started_too_late_is_started_again() -> None:
    writer = Writer(LATE, LATE, "")
    assert started(writer) is writer
    assert writer.starts == 3


def test_any_other_error_of_a_query_is_raised_and_starts_have_an_end() -> None:
    with pytest.raises(RuntimeError, match="topic"):
        started(Writer("no such topic"))
    writer = Writer(*[LATE] * 9)
    with pytest.raises(RuntimeError, match="connect back"):
        started(writer)
    assert writer.starts == 5


class Ended(Writer):
    """Its queries have ended when they are looked at for the first time."""

    @property
    def isActive(self) -> bool:
        return not self._ends[self.starts - 1]


def test_a_query_that_failed_between_two_looks_is_not_taken_for_one_that_ended_well() -> None:
    with pytest.raises(RuntimeError, match="topic"):
        started(Ended("no such topic"))
    writer = Ended(LATE, "")
    assert started(writer) is writer
    assert writer.starts == 2
