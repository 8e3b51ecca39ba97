"""What executors say is one line on stderr."""

import pytest

from tandemq.spark.runtime.task_log import note


def test_a_note_is_one_line_with_its_examples(capsys: pytest.CaptureFixture[str]) -> None:
    note("left out 2 damaged places", ["at 5", "at 9"])
    assert capsys.readouterr().err == "tandemq: left out 2 damaged places; at 5; at 9\n"
