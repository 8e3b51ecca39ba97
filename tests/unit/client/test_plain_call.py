"""Calls in threads: whatever leaves the function is a value."""

import pytest

from tandemq.client.plain_call import Outcome, outcome_of


def test_an_answer_is_carried() -> None:
    assert outcome_of(len, "abc") == Outcome(3)


@pytest.mark.parametrize("error", [ValueError(), StopIteration(), KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_every_error_is_carried(error: BaseException) -> None:
    def raises(_: object) -> None:
        raise error

    assert outcome_of(raises, None) == Outcome(error=error)
