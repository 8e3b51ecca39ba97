"""A pair is upgraded from the version before to this one, in both orders, while a producer sends: nothing is lost.

As docs/operations.md says, slave first with a promotion; and the other way, master first, which a restart makes of it.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers.servers import free_ports

from tandemq.client import Message, sync
from tandemq.client.config import ClientConfig
from tandemq.client.send_results import SendStatus
from tandemq.errors import TandemError
from tandemq.testing.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "2923fc94e145"
"""The version before: the commit that the releases of this tree began with."""
BATCH = 150
"""Messages that must be acknowledged before and after each step."""


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("before")
    archive = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True)
    if archive.returncode:
        pytest.skip(f"the version before, {BEFORE}, is not in this clone: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True)
    return place / "src"


class Machine:
    """One broker that can be stopped and started with another version."""

    def __init__(self, directory: Path, source: Path, **settings: object) -> None:
        self.address = f"127.0.0.1:{settings['listenPort']}"
        self._conf, self._log = directory / "broker.conf", directory / "log"
        directory.mkdir()
        lines = {"storePathRootDir": directory / "store", "mappedFileSizeCommitLog": 1 << 24, **settings}
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self.start(source)

    def start(self, source: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source)}
        command = [sys.executable, "-m", "tandemq", "broker", "-c", str(self._conf)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def upgrade(self) -> None:
        self.stop()
        self.start(ROOT / "src")


class Pair:
    """A name server, a SYNC_MASTER and a SLAVE, all of the version before."""

    def __init__(self, directory: Path, source: Path) -> None:
        (name_port,) = free_ports(1)
        master, slave = free_ports(2, around=True)
        self.namesrv = f"127.0.0.1:{name_port}"
        command = [sys.executable, "-m", "tandemq", "namesrv", "--set", f"listenPort={name_port}"]
        self._namesrv = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": str(source)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        common = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "namesrvAddr": self.namesrv}
        self.master = Machine(directory / "m", source, brokerRole="SYNC_MASTER", listenPort=master, **common)
        self.slave = Machine(directory / "s", source, brokerRole="SLAVE", brokerId=1, listenPort=slave, **common)

    def cli(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tandemq", *arguments]
        environment = {**os.environ, "NAMESRV_ADDR": self.namesrv}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"

    def is_in_sync(self) -> None:
        self.cli("ha", "wait", "--in-sync", "--writable", "--timeout", "60")

    def stop(self) -> None:
        for machine in (self.master, self.slave):
            machine.stop()
        self._namesrv.kill()
        self._namesrv.wait()


@pytest.fixture
def pair(tmp_path: Path, old_source: Path) -> Iterator[Pair]:
    found = Pair(tmp_path, old_source)
    try:
        found.is_in_sync()
        yield found
    finally:
        found.stop()


class Sender:
    """Sends until it is told to stop, and keeps what was acknowledged by two copies."""

    def __init__(self, namesrv: str) -> None:
        self.acknowledged: list[bytes] = []
        self._namesrv = namesrv
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        config = ClientConfig(namesrv=self._namesrv, route_interval_ms=500)
        number = 0
        with sync.Producer("upgrade", config=config) as producer:
            while not self._stop.is_set():
                number += 1
                body = b"%d" % number
                with contextlib.suppress(TandemError):  # a step of the upgrade: the next one is tried
                    result = producer.send(Message(topic="orders", body=body), copies="2", timeout_ms=2000)
                    if result.status is SendStatus.SEND_OK:
                        self.acknowledged.append(body)

    def goes_on(self) -> None:
        assert self._thread.is_alive()
        wanted = len(self.acknowledged) + BATCH
        wait_until(
            lambda: len(self.acknowledged) >= wanted, lambda: f"{wanted}, had {len(self.acknowledged)}", seconds=60
        )


def is_complete(pair: Pair, sender: Sender) -> None:
    command = [sys.executable, "-m", "tandemq", "consume", "orders", "-n", pair.namesrv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    read = {line.rsplit(" ", 1)[1].encode() for line in done.stdout.splitlines()}
    assert set(sender.acknowledged) - read == set()


def test_slave_first_then_promote_then_the_old_master(pair: Pair) -> None:
    with Sender(pair.namesrv) as sender:
        sender.goes_on()
        pair.slave.upgrade()
        pair.is_in_sync()
        sender.goes_on()
        pair.cli("broker", "promote", pair.slave.address)
        sender.goes_on()
        pair.master.upgrade()
        pair.is_in_sync()
        sender.goes_on()
    is_complete(pair, sender)


def test_master_first_then_slave(pair: Pair) -> None:
    with Sender(pair.namesrv) as sender:
        sender.goes_on()
        pair.master.upgrade()
        pair.is_in_sync()
        sender.goes_on()
        pair.slave.upgrade()
        pair.is_in_sync()
        sender.goes_on()
    is_complete(pair, sender)
