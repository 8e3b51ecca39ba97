"""The recipes of docs/lake.md run as they stand there, on a lake that `tandemq spark archive` made."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli, Pair
from .documents import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.slow]

RECIPES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "lake.md").read_text(), re.S)
READERS = ("duckdb", "polars")
"""No part of the environment: fetched for this test."""


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("readers")
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*install, "--target", str(place), *READERS, "polars-runtime-32"], capture_output=True, text=True, timeout=240
    )
    if done.returncode:
        pytest.skip(f"{' and '.join(READERS)} can't be fetched: {done.stderr.strip().splitlines()[-1]}")
    return place


def test_the_recipes_run(cli: Cli, pair: Pair, readers: Path) -> None:
    for number in range(4):
        cli("send", "orders", f"order {number}", "--tag", f"tag{number % 2}", "--key", f"key-{number}")
    cli("spark", "archive", "-n", pair.namesrv, "--topics", "orders", "--to", "lake")
    path = f"{readers}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    assert len(RECIPES) == 4
    said = []
    for recipe in RECIPES:
        done = subprocess.run(
            [sys.executable, "-c", recipe],
            capture_output=True, text=True, timeout=240, cwd=cli.directory, env={**cli.environment, "PYTHONPATH": path},
        )  # fmt: skip
        assert done.returncode == 0, f"{recipe}\n{done.stdout}\n{done.stderr}"
        said.append(done.stdout)
    duck, polars, spark, _ = said
    assert "key-3" in duck
    assert "order 3" in duck
    assert "tag1" in polars
    assert "median ms" in polars
    assert "order 0" in spark
