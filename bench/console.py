"""The console: how soon a person sees the first page of a large cluster, that a master is gone, and what that costs.

A pair of ours with 10,000 topics and 5,000 groups; a real browser opens the pages. The time is the browser's own
`first-contentful-paint`, from the click to the first thing on the screen. The cost is the master's processor time while
a page is open, less what it uses with none.

`watching` kills the master of a pair while a browser shows *Replication*, idle and beside as many busy processes as
there are processors, and takes the time until the page says "no master".
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers import servers

from bench.frame import Benchmark, Figure, Run, Unavailable
from tandemq.client.admin import Admin
from tandemq.model.topic import SubscriptionGroupConfig, TopicConfig

AT_ONCE = 64
WATCHED_SECONDS = 20.0
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@dataclass
class Place:
    up: servers.Servers
    url: str
    browser: str


async def _fill(namesrv: str, topics: int, groups: int) -> None:
    async with Admin(namesrv=namesrv) as admin:
        for start in range(0, topics, AT_ONCE):
            names = [f"topic-{number:05d}" for number in range(start, min(topics, start + AT_ONCE))]
            await asyncio.gather(
                *(admin.create_topic(TopicConfig(name=name, read_queues=4, write_queues=4)) for name in names)
            )
        for start in range(0, groups, AT_ONCE):
            names = [f"group-{number:05d}" for number in range(start, min(groups, start + AT_ONCE))]
            await asyncio.gather(*(admin.create_group(SubscriptionGroupConfig(name=name)) for name in names))


@contextlib.contextmanager
def _place(run: Run) -> Iterator[Place]:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise Unavailable("no Chromium: apt-get install chromium")
    with servers.ours(run.directory / "pair", {}, slave=True) as up:
        asyncio.run(_fill(up.namesrv, run.count(10_000, 20), run.count(5_000, 20)))
        command = [sys.executable, "-m", "tandemq", "console", "-n", up.namesrv, "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as console:
            try:
                assert console.stdout is not None
                yield Place(up, console.stdout.readline().strip().removeprefix("console ready on "), browser)
            finally:
                console.terminate()


def _paint(page: Any, url: str) -> float:
    page.goto(url)
    painted = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    return float(page.wait_for_function(painted).json_value())


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _share(pid: int, seconds: float) -> float:
    """Percent of a core that a process uses over the next seconds."""
    before = _processor_seconds(pid)
    time.sleep(seconds)
    return 100 * (_processor_seconds(pid) - before) / seconds


def _ours(run: Run) -> Mapping[str, float]:
    from playwright.sync_api import sync_playwright

    place: Place = run.shared
    seconds = max(2.0, WATCHED_SECONDS * min(1.0, run.scale * 10))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place.browser, args=FLAGS)
        page = browser.new_page()
        paints = {
            "topics": _paint(page, f"{place.url}/topics"),
            "last_page": _paint(page, f"{place.url}/topics?page=200"),
            "groups": _paint(page, f"{place.url}/groups"),
            "cluster": _paint(page, f"{place.url}/cluster"),
        }
        browser.close()
    master = place.up.pids["broker"]
    alone = _share(master, seconds)
    with urllib.request.urlopen(f"{place.url}/live/replication", timeout=60):
        watched = _share(master, seconds)
    return {**paints, "cost": max(0.0, watched - alone)}


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """Processes that take all they can get, as builds do on a shared machine."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _says_so(page: Any, directory: Path) -> float:
    """Milliseconds from the kill of the master until the page says that there is none."""
    from tandemq.cli.local_cluster import LocalCluster

    command = [sys.executable, "-m", "tandemq"]
    told = subprocess.run(
        [*command, "up", "--dir", str(directory), "--detach", "--json"], capture_output=True, check=True, timeout=120
    )
    try:
        page.goto(f"{json.loads(told.stdout)['console']}/replication")
        page.locator("section.panel header .status", has_text="healthy").wait_for(timeout=60_000)
        cluster = LocalCluster.load(directory)
        assert cluster is not None
        began = time.perf_counter()
        cluster.kill(cluster.plan.master)
        page.locator("section.panel header .status", has_text="no master").wait_for(timeout=60_000)
        return (time.perf_counter() - began) * 1000
    finally:
        subprocess.run([*command, "down", "--dir", str(directory)], capture_output=True, check=False, timeout=60)


def _watching(run: Run) -> Mapping[str, float]:
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        raise Unavailable("no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        page = browser.new_page()
        idle = _says_so(page, run.directory / f"idle-{run.round}")
        with _busy(os.cpu_count() or 1):
            busy = _says_so(page, run.directory / f"busy-{run.round}")
        browser.close()
    return {"idle": idle, "busy": busy}


BENCHMARKS = {
    "watching": Benchmark(
        what="From the kill of a master until the Replication page says that there is none.",
        figures={
            "idle": Figure("ms", "less", goal=2000, what="on a machine with nothing else to do"),
            "busy": Figure("ms", "less", goal=2000, what="beside a busy process for each processor"),
        },
        sides={"ours": _watching},
        rounds=5,
    ),
    "pages": Benchmark(
        what="The console on a pair with 10,000 topics and 5,000 groups, in a real browser.",
        figures={
            "topics": Figure("ms", "less", goal=1000, what="first paint of Topics"),
            "last_page": Figure("ms", "less", goal=1000, what="first paint of the last page of Topics"),
            "groups": Figure("ms", "less", goal=1000, what="first paint of Groups"),
            "cluster": Figure("ms", "less", goal=1000, what="first paint of Cluster"),
            "cost": Figure("%", "less", goal=1.0, what="of a core of the master, for an open page"),
        },
        sides={"ours": _ours},
        setup=_place,
        rounds=3,
    ),
}
