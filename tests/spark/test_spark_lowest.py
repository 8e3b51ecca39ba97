"""The lowest Spark that pyproject.toml allows: tables, push-down and streams in an environment of its own.

    TANDEMQ_LOWEST_SPARK=1 ./run test tests/spark/test_spark_lowest.py

Fetches pyspark (450 MB) once; every other test runs with the newest, which requirements/ names.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers import tools

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("TANDEMQ_LOWEST_SPARK" not in os.environ, reason="TANDEMQ_LOWEST_SPARK=1 runs it"),
]
ROOT = Path(__file__).resolve().parents[2]
FILES = ("test_spark_planning.py", "test_spark_sql.py", "test_spark_streams.py")
TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis")


def lowest() -> str:
    """Returns the version that the extra `spark` asks for at least."""
    found = re.search(r'"pyspark>=(\d+\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert found is not None
    return f"{found[1]}.0"


def environment() -> Path:
    """Returns the Python of an environment with that version, made on first use."""
    version = lowest()
    home = tools.CACHE / f"pyspark-{version}"
    python = home / "bin" / "python"
    with tools.one_at_a_time("pyspark"):
        if not (home / "ready").exists():
            tools.fetch("an environment", [sys.executable, "-m", "venv", "--clear", str(home)])
            wanted = [f"pyspark=={version}", *TOOLS, "-e", f"{ROOT}[spark]"]
            tools.fetch(f"pyspark {version}", [str(python), "-m", "pip", "install", "-q", *wanted], timeout=1200)
            (home / "ready").touch()
    return python


def test_the_lowest_version_does_the_same() -> None:
    try:
        python = environment()
    except tools.Missing as reason:
        pytest.skip(str(reason))
    told = subprocess.run(
        [str(python), "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True
    )
    assert told.stdout.strip() == lowest()
    files = [str(ROOT / "tests" / "spark" / name) for name in FILES]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *files],
        cwd=ROOT, capture_output=True, text=True, env=plain,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert "skipped" not in done.stdout
