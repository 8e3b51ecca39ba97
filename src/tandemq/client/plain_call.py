"""Plain functions of the user's program, called in threads: whatever leaves one is carried back as a value.

A future can't carry a StopIteration, and a KeyboardInterrupt or SystemExit that reaches the event loop ends it. None of
them means anything there: a thread gets no signals, so the function raised it itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What a function returned, or what it raised."""

    answer: Any = None
    error: BaseException | None = None


def outcome_of(function: Callable[[Any], Any], given: Any) -> Outcome:
    """Calls a function and never raises."""
    try:
        return Outcome(function(given))
    except BaseException as error:
        return Outcome(error=error)
