"""People get our sentence, not the wrappers around it."""

import pytest

from tandemq.spark.runtime.failures import cause_of

TRACE = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):
  File "/src/tandemq/spark/options/parsing.py", line 48, in parse
    options.check_together()
{last}
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("tandemq.errors.ConfigError: path: missing; give one", "path: missing; give one"),
        ("tandemq.spark.sink.outbox.NotDelivered: b refuses 1 messages: no", "b refuses 1 messages: no"),
        ("ValueError: of somebody else", "ValueError: of somebody else"),
    ],
)
def test_the_innermost_exception_is_told(last: str, told: str) -> None:
    assert cause_of(TRACE.format(last=last)) == told


def test_sparks_own_sentence_comes_without_its_code() -> None:
    assert cause_of("[TABLE_OR_VIEW_NOT_FOUND] The table `x` can't be found. SQLSTATE: 42P01\n\tat org.apache.X") == (
        "The table `x` can't be found. SQLSTATE: 42P01"
    )
    assert cause_of("") == "Spark failed without a reason"
