"""docs/replica.md as a stranger follows it: from "I have a cluster", a real RocketMQ pair, to "my query runs"."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.documents import ROOT
from tests.peers import servers
from tests.peers.programs import JAVA_VERSIONS
from tests.peers.servers import Servers, free_ports

from tandemq.client import ClientConfig, Message, Producer
from tandemq.client.blocking_cluster import BlockingCluster, ClusterAccess
from tandemq.testing.waiting import wait_until

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = (ROOT / "docs" / "replica.md").read_text()
COUNT = 600


def block(language: str) -> str:
    """The first fenced block of a language on the page."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.S)
    assert found is not None
    return found[1]


def commands() -> list[str]:
    """Returns what the page tells to run within its sentences, on the way to the query: how to move comes after it."""
    return re.findall(r"`(tandemq ha [^`]* --address [^`]*)`", PAGE.partition("## Move to TandemQ")[0])


class Place:
    """The addresses and directories of the page, and those of this machine."""

    def __init__(self, up: Servers, directory: Path) -> None:
        (port,) = free_ports(around=True)
        slave_port = int(up.slave.rpartition(":")[2])
        self.directory = directory
        self._words = {
            "10.0.0.2:10912": f"127.0.0.1:{slave_port + 1}",
            "10.0.0.9:10911": f"127.0.0.1:{port}",
            "10.0.0.9": "127.0.0.1",
            "10.0.0.1:9876": up.namesrv,
            "listenPort=10911": f"listenPort={port}",
            "/var/lib/tandemq/store": str(directory / "observer" / "store"),
        }

    def here(self, text: str) -> str:
        for theirs, ours in self._words.items():
            text = text.replace(theirs, ours)
        assert "10.0.0." not in text
        return text

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        words = self.here(command).split()
        assert words[0] == "tandemq"
        return subprocess.run(
            [sys.executable, "-m", *words], cwd=self.directory, capture_output=True, text=True, timeout=120
        )


@contextmanager
def observer(place: Place) -> Iterator[Path]:
    """The broker that the page starts; yields its log."""
    (place.directory / "observer.conf").write_text(place.here(block("properties")))
    words = block("sh").split()
    log = place.directory / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", *words], cwd=place.directory, stdout=out, stderr=out)
    try:
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def sent(namesrv: str) -> None:
    async with Producer("p", config=ClientConfig(namesrv=namesrv)) as producer:
        for number in range(COUNT):
            tag = "paid" if number % 3 else "open"
            assert (await producer.send(Message(topic="orders", body=b"%d" % number, tags=tag))).ok


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_the_way_from_a_cluster_to_a_query(version: str, tmp_path: Path) -> None:
    with servers.rocketmq(version, tmp_path / "production", {}, slave=True, heap="512m") as up:
        asyncio.run(sent(up.namesrv))
        ends = BlockingCluster(ClusterAccess(namesrv=up.namesrv)).log_end
        wait_until(lambda: ends(up.slave) == ends(up.broker), "RocketMQ's own slave has everything")
        place = Place(up, tmp_path)
        status, wait = commands()
        with observer(place) as log:
            done = place.run(wait)
            assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{log.read_text()}"
            done = place.run(status)
            assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{log.read_text()}"
            assert "OBSERVER" in done.stdout
            assert "in RocketMQ's protocol: its END is" in " ".join(done.stderr.split()), "where it is"
            query = subprocess.run(
                [sys.executable, "-c", place.here(block("python"))],
                cwd=tmp_path, capture_output=True, text=True, timeout=300,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip
            assert query.returncode == 0, query.stderr[-3000:]
        for tag, count in (("open", 200), ("paid", 400)):
            lines = re.findall(rf"\|\s*{tag}\|\s*(\d+)\|", query.stdout)
            assert lines == [str(count)] * 2, f"by port and by files: {query.stdout}"
