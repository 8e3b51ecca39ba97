"""A live pair with its console, as `tandemq up` starts them, and a real browser that looks at it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tandemq.cli.local_cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts" / "console"
"""Screenshots of every run: CI keeps them, people look at them."""
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


def tandemq(*arguments: str, namesrv: str = "", stdin: bytes = b"", timeout: float = 120) -> str:
    """The standard output of a command that must succeed."""
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200", "NAMESRV_ADDR": namesrv}
    done = subprocess.run(
        [sys.executable, "-m", "tandemq", *arguments],
        capture_output=True,
        input=stdin,
        env=environment,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@dataclass
class Live:
    """A pair that runs, and its console."""

    directory: Path
    namesrv: str
    url: str

    @property
    def cluster(self) -> LocalCluster:
        found = LocalCluster.load(self.directory)
        assert found is not None
        return found

    def tandemq(self, *arguments: str, stdin: bytes = b"") -> str:
        return tandemq(*arguments, namesrv=self.namesrv, stdin=stdin)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.tandemq(*arguments, "--json"))


def start_pair(directory: Path) -> Live:
    told = json.loads(tandemq("up", "--dir", str(directory), "--detach", "--json"))
    return Live(directory, told["namesrv"], told["console"])


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One pair for all tests that leave it as they found it."""
    directory = tmp_path_factory.mktemp("console-pair")
    try:
        yield start_pair(directory)
    finally:
        tandemq("down", "--dir", str(directory))


@pytest.fixture
def own_pair(tmp_path: Path) -> Iterator[Live]:
    """A pair that the test may kill."""
    try:
        yield start_pair(tmp_path / "pair")
    finally:
        tandemq("down", "--dir", str(tmp_path / "pair"))


def chromium() -> str:
    """The browser: Debian's package, installed when the tests run as root."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        packages = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-liberation"]
        for command in (["apt-get", "update", "-qq"], packages):
            subprocess.run(command, env=environment, capture_output=True, timeout=280, check=False)
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium (done by itself when the tests run as root)")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with its file: its event loop would be in the way of the tests that come after it in the same process."""
    path = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@dataclass
class Tab:
    """A page of the browser and everything that it complained about."""

    page: Page
    complaints: list[str]


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    """A fresh profile; a script error or a refusal of the content security policy fails the test."""
    context = browser.new_context(viewport=DESKTOP)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(20_000)
    found = Tab(page, [])
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("console", lambda message: found.complaints.append(message.text) if message.type == "error" else None)
    yield found
    context.close()
    assert found.complaints == []


@contextlib.contextmanager
def console_for(namesrv: str) -> Iterator[str]:
    """The address of a console that looks at these name servers."""
    command = [sys.executable, "-m", "tandemq", "console", "-n", namesrv, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().removeprefix("console ready on ")
        finally:
            process.terminate()
