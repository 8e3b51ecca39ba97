"""The programs in docs/client.md run as they stand there, against a fresh cluster, in the order of the page."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandemq.testing.local_broker import LocalBroker

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "client.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    # Failed messages come back after a second, not after the ten that the page speaks of.
    with LocalBroker(properties={"messageDelayLevel": " ".join(["1s"] * 18)}) as broker:
        yield broker.namesrv


def test_the_programs_of_the_page_run(namesrv: str, tmp_path: Path) -> None:
    assert len(PROGRAMS) >= 10
    for number, program in enumerate(PROGRAMS):
        path = tmp_path / f"test_program_{number}.py"
        path.write_text(program.replace("127.0.0.1:9876", namesrv))
        # One program is a test: pytest runs it, as it would for a user.
        pytest_s = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tandemq.testing.pytest_plugin"]
        runner = pytest_s if "import pytest" in program else []
        done = subprocess.run(
            [sys.executable, "-W", "error", *runner, str(path)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, f"{program}\n{done.stdout}\n{done.stderr}"


def test_the_programs_of_the_page_are_typed(tmp_path: Path) -> None:
    """As a user's service would be checked: strictly, with the package's own types."""
    for number, program in enumerate(PROGRAMS):
        (tmp_path / f"program_{number}.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
