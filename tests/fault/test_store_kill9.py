"""A writer with SYNC_FLUSH, killed with SIGKILL at random moments: what it acknowledged is there and whole."""

import os
import runpy
import select
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tandemq.formats.record import parse_record
from tandemq.store.message_store import MessageStore

WRITER = Path(__file__).parent / "store_writer.py"
CONFIG = runpy.run_path(str(WRITER))["CONFIG"]
ROUNDS = 50


def run_until_killed(root: Path, seed: int) -> list[int]:
    """The numbers the writer acknowledged before it was killed."""
    random = Random(seed)
    with subprocess.Popen([sys.executable, str(WRITER), str(root), str(seed)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        output = b""
        wanted = random.randrange(1, 40)
        while output.count(b"\n") < wanted:
            chunk = os.read(writer.stdout.fileno(), 65536)
            assert chunk, "the writer died by itself"
            output += chunk
        select.select([], [], [], random.random() * 0.005)  # the moment of the kill is random, nothing waits for it
        writer.send_signal(signal.SIGKILL)
        output += writer.stdout.read()
    return [int(line) for line in output.split(b"\n")[:-1]]


@pytest.mark.slow
def test_everything_acknowledged_survives_sigkill(tmp_path: Path) -> None:
    """Fifty lives of one store; after each, every message acknowledged in any of them is read back by queue and key."""
    root = tmp_path / "store"
    acknowledged: set[int] = set()
    checked = [0, 0, 0]
    for life in range(ROUNDS):
        acknowledged.update(run_until_killed(root, life))
        store = MessageStore.open(root, CONFIG, read_only=True)
        total = sum(store.reader.queue_range("topic", queue_id)[1] for queue_id in range(3))
        assert total > max(acknowledged), f"life {life}"
        checked = [check_queue(store, queue_id, checked[queue_id]) for queue_id in range(3)]
        store.close()
    whole = MessageStore.open(root, CONFIG)
    for queue_id in range(3):
        check_queue(whole, queue_id, 0)
    for number in sorted(acknowledged)[:: max(1, len(acknowledged) // 300)]:
        (found,) = whole.reader.query("topic", f"key-{number:09d}", 5, 0, 1 << 62)
        assert found.body[:8] == number.to_bytes(8, "big")
    whole.close()


def check_queue(store: MessageStore, queue_id: int, position: int) -> int:
    """Numbers go up by three, bodies are whole, checksums agree; where the queue ends."""
    highest = store.reader.queue_range("topic", queue_id)[1]
    while position < highest:
        result = store.reader.get("topic", queue_id, position, 100, 1 << 20)
        for piece in result.slices:
            at = 0
            while at < len(piece):
                message = parse_record(piece, at, crc=True)
                number = (message.queue_offset * 3 + queue_id).to_bytes(8, "big")
                assert message.body == number * (len(message.body) // 8)
                at += message.size
        position = result.next_offset
    return highest
