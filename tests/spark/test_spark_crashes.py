"""The short form of `bench.spark_kills`: workers, broker, JVM and driver killed once each during sink and archive."""

import os
import random
from pathlib import Path

import pytest
from bench.spark_kills import QUERIES, VICTIMS, run

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """SIGKILL to each part while both have a micro-batch under way; compared without Spark."""
    seed = int(os.environ.get("TANDEMQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"TANDEMQ_SEED={seed}")
    outcome = run(tmp_path, VICTIMS, 1, seed)
    assert outcome.is_good, outcome
    assert min(outcome.kills[f"{victim} during the {query}"] for victim in VICTIMS for query in QUERIES) >= 1
