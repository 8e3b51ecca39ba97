"""Two minutes of the soak: a pair that lives through promotions, restarts, kills and clock jumps, against a ledger."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_minutes_of_a_long_life_lose_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tandemq",
        "bench",
        "soak",
        "--minutes",
        "2",
        "--seed",
        "17",
        "--dir",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "lost: 0 messages" in done.stdout
