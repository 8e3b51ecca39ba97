"""From nothing to a working pair: the README's path in a clone, and the wheel in an empty environment."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandemq

from .documents import ROOT, blocks_of, transcript, unlike

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NOBODY = 65534
NO_CLONE = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", "*.egg-info", "build", "dist", "golden", "results", "tandemq-data"
)
NEEDS_SPARK = ("./run spark", "./run demo")
"""Installs 1.3 GB: tests/cli/test_documents.py runs them with the environment of the tests."""


class Newcomer:
    """A user with a home and nothing else: no Python path, no package, no earlier cluster."""

    def __init__(self, home: Path, user: int) -> None:
        self.home = home
        self._as = {} if user == os.geteuid() else {"user": user, "group": user, "extra_groups": []}
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))}
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.environment = {**kept, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "COLUMNS": "100"}
        if user != os.geteuid():
            subprocess.run(["chown", "-R", f"{user}:{user}", str(home)], check=True)

    def run(self, command: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            ["sh", "-c", command],
            capture_output=True, text=True, timeout=400, cwd=cwd, env=self.environment, **self._as,
        )  # fmt: skip


@pytest.fixture(params=["root", "nobody"])
def newcomer(request: pytest.FixtureRequest) -> Iterator[Newcomer]:
    user = {"root": 0, "nobody": NOBODY}[request.param]
    if os.geteuid() != 0:
        if user == 0:
            pytest.skip("not root here: the path is walked as this user only")
        user = os.geteuid()
    home = Path(tempfile.mkdtemp(prefix="tandemq-newcomer-"))  # pytest's own directory is closed to other users
    home.chmod(0o755)
    try:
        shutil.copytree(ROOT, home / "tandemq", ignore=NO_CLONE)
        yield Newcomer(home, user)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_the_path_of_the_readme(newcomer: Newcomer) -> None:
    """Every command of its transcripts, in order, in a clone that was never used; the output is as it says there."""
    clone = newcomer.home / "tandemq"
    steps = [
        step
        for block in blocks_of(ROOT / "README.md")
        if block.language == "console"
        for step in transcript(block.text)
    ]
    steps = [(command, lines) for command, lines in steps if not command.startswith(NEEDS_SPARK)]
    assert [command.split()[1] for command, _ in steps] == ["up", "send", "consume", "ha", "down"]
    try:
        for command, expected in steps:
            done = newcomer.run(command, clone)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            assert not (missing := unlike(expected, done.stdout)), f"{command}: {missing}\n{done.stdout}\n{done.stderr}"
            if command.startswith("./run up"):
                assert "packages" in done.stderr, "the first use says what it installs"
                assert "Spark" not in done.stderr, "a broker needs none"
    finally:
        newcomer.run("./run down", clone)


def test_the_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    """As docs/operations.md installs it: the lock with hashes, then the wheel alone."""
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=NO_CLONE)
    # The last lines of `./run wheel`.
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (source / "dist").glob("tandemq-*.whl")
    assert tandemq.__version__ in wheel.name
    venv.create(tmp_path / "env", with_pip=True)
    user = Newcomer(tmp_path, os.geteuid())
    for arguments in (f"--require-hashes -r {ROOT / 'requirements' / 'broker.lock'}", f"--no-deps {wheel}"):
        done = user.run(f"env/bin/pip install -q --disable-pip-version-check {arguments}", tmp_path)
        assert done.returncode == 0, done.stderr
    try:
        assert user.run("env/bin/tandemq --version", tmp_path).stdout == f"tandemq {tandemq.__version__}\n"
        for command in ("up --detach", "send orders hello", "consume orders", "ha wait --in-sync --timeout 30"):
            done = user.run(f"env/bin/tandemq {command}", tmp_path)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        listed = user.run("env/bin/tandemq broker list --json", tmp_path).stdout
        assert listed.count(f'"version": "TandemQ {tandemq.__version__}"') == 2
    finally:
        user.run("env/bin/tandemq down", tmp_path)
