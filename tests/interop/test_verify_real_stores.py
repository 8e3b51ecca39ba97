"""`tandemq store verify` has nothing to say about stores that real brokers wrote, in the places where layouts are odd.

Files are tiny, so that log, queues and index roll many times, in the middle of batches and between the keys of one
message; messages have several keys and tags (5.5.0 indexes tags too); a second store is left by a kill in mid-batch.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.peers.servers import Servers, rocketmq
from tests.peers.tools import Missing

from tandemq.client import Message, sync
from tandemq.errors import TandemError
from tandemq.testing.waiting import wait_until

pytestmark = [pytest.mark.peer, pytest.mark.slow]

VERSIONS = ("4.9.7", "5.3.3", "5.5.0")
PROPERTIES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "50",
    "maxIndexNum": "70",
    "maxMessageSize": "16384",
    "timerWheelEnable": "false",
    "flushDiskType": "ASYNC_FLUSH",
}
BATCHES = 60


def batch(number: int) -> list[Message]:
    """Eleven messages of odd sizes with three keys each: 70 index entries end between two keys of one message."""
    return [
        Message(
            topic="orders",
            body=b"x" * ((number * 131 + place * 37) % 700 + 1),
            tags=f"tag{place % 3}",
            keys=(f"a{number}-{place}", f"b{number}", "same"),
        )
        for place in range(11)
    ]


def send(servers: Servers, count: int, stop: threading.Event | None = None) -> int:
    """Sends batches and single messages with properties; returns how many batches were acknowledged."""
    sent = 0
    with sync.Producer("verify", namesrv=servers.namesrv) as producer:
        while sent < count and not (stop is not None and stop.is_set()):
            try:
                producer.send_batch(batch(sent), timeout_ms=5000)
                producer.send(Message(topic="orders", body=b"%d" % sent, properties={"n": str(sent)}), timeout_ms=5000)
            except TandemError:
                if stop is None:
                    raise
                break  # the broker was killed
            sent += 1
    return sent


def verify(store: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tandemq", "store", "verify", str(store), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ})


def is_silent(store: Path, batches: int) -> None:
    done = verify(store)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    told = json.loads(done.stdout)
    assert told["problems"] == []
    assert told["records"] >= batches * 12
    assert len(list((store / "commitlog").iterdir())) > 3
    assert len(list((store / "index").iterdir())) > 3


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_verify_is_silent_on_what_a_real_broker_wrote(version: str, how: str, tmp_path: Path) -> None:
    try:
        with rocketmq(version, tmp_path, PROPERTIES) as servers:
            store = next(tmp_path.rglob("commitlog")).parent
            batches = send(servers, BATCHES)
            if how == "killed":
                kill_in_mid_batch(servers, store)
            else:
                os.kill(servers.pids["broker"], signal.SIGTERM)
            wait_until(
                lambda: not Path(f"/proc/{servers.pids['broker']}").exists(), "the end of the broker", seconds=60
            )
            shutil.copytree(store, tmp_path / "copy")
    except Missing as reason:
        pytest.skip(str(reason))
    is_silent(tmp_path / "copy", batches)


def kill_in_mid_batch(servers: Servers, store: Path) -> None:
    """While another thread sends batch after batch."""
    stop = threading.Event()
    sender = threading.Thread(target=send, args=(servers, 100_000, stop))
    sender.start()
    try:
        files = len(list((store / "commitlog").iterdir()))
        wait_until(lambda: len(list((store / "commitlog").iterdir())) >= files + 3, "a sender at work", seconds=60)
    finally:
        os.kill(servers.pids["broker"], signal.SIGKILL)
        stop.set()
        sender.join()
