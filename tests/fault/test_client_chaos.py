"""A minute of chaos: brokers, name servers and members die, roles change, listeners misbehave; nothing is lost.

`python -m bench.chaos --seconds 600` is the same for longer; `bench/results/client.chaos.txt` is
what ten minutes of it said last.
"""

import asyncio
import json
from pathlib import Path

import pytest
from bench.chaos.__main__ import STREAMS, chaos

pytestmark = pytest.mark.timeout(480)

KEPT = Path(__file__).parents[2] / "bench" / "results" / "client.chaos.txt"


@pytest.mark.slow
def test_nothing_is_lost_out_of_order_or_handled_twice_at_once(tmp_path: Path) -> None:
    report = asyncio.run(chaos(35.0, 11, tmp_path))
    assert report["problems"] == [], json.dumps(report, indent=1)
    assert set(report["handled"]) == set(STREAMS)
    assert all(report["acknowledged"].values())
    assert sum(report["faults"].values()) >= 3


def test_the_long_run_that_is_kept_had_no_problems() -> None:
    report = json.loads(KEPT.read_text())
    assert report["seconds"] >= 600
    assert report["problems"] == []
    assert set(report["handled"]) == set(STREAMS)
