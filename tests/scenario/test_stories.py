"""The stories in this directory happen as they are told.

`TANDEMQ_RETELL=1 pytest tests/scenario` writes down what happens now; read the difference before it is committed.
"""

import logging
import os
from pathlib import Path

import pytest

from tandemq.sim.scenario import blocks_of, retold

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_happens_as_it_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    told = path.read_text()
    happened = retold(told)
    if os.environ.get("TANDEMQ_RETELL"):
        path.write_text(happened)
        return
    assert happened == told


def test_there_are_stories_enough_and_each_says_why_it_is_told() -> None:
    assert len(STORIES) >= 20
    assert all(blocks_of(path.read_text())[0][0].startswith("# ") for path in STORIES)
