"""Driver, JVM and workers killed again and again during an archive and a streaming sink: nothing lost, nothing
twice. Each kill costs a start of Spark, so a usual run does 2; TANDEMQ_CRASH_ROUNDS=20 is the thorough one.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tandemq.codec.record import encode_record
from tandemq.model.message import encode_properties
from tandemq.spark.broker_access import BrokerAccess
from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.decoder import Decoder
from tandemq.spark.lake import Lake
from tandemq.spark.offsets import slices_of
from tandemq.spark.options import PullOptions, parse

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROUNDS = int(os.environ.get("TANDEMQ_CRASH_ROUNDS", "2"))
SEGMENT = 1 << 20


def make_store(root: Path, count: int, rng: random.Random) -> list[bytes]:
    """A log of `count` messages in segments of 1 MiB; their bodies."""
    (root / "commitlog").mkdir(parents=True)
    bodies, log = [], bytearray()
    host = bytes([127, 0, 0, 1]) + (1).to_bytes(4, "big")
    for n in range(count):
        body = f"{n}:".encode() + rng.randbytes(rng.randint(50, 600))
        fields: dict[str, Any] = {
            "topic": f"t{n % 3}", "queue_id": n % 2, "queue_offset": n, "born_timestamp": 1_700_000_000_000 + n,
            "born_host": host, "store_timestamp": 1_700_000_000_000 + n, "store_host": host, "body": body,
            "properties": encode_properties({"KEYS": f"k{n}", "n": str(n)}),
        }  # fmt: skip
        record = encode_record(physical_offset=len(log), **fields)
        left = SEGMENT - len(log) % SEGMENT
        if len(record) + 8 > left:
            log += left.to_bytes(4, "big") + bytes.fromhex("CBD43194") + bytes(left - 8)
            record = encode_record(physical_offset=len(log), **fields)
        log += record
        bodies.append(body)
    log += bytes(-len(log) % SEGMENT)
    for start in range(0, len(log), SEGMENT):
        (root / "commitlog" / f"{start:020d}").write_bytes(log[start : start + SEGMENT])
    return bodies


def batches_done(checkpoints: Path, query: str) -> int:
    """Micro-batches that a query has begun."""
    return sum(1 for _ in (checkpoints / query / "offsets").glob("[0-9]*"))


@pytest.mark.timeout(900 + 180 * ROUNDS)
def test_kills_lose_and_repeat_nothing(cluster: Any, tmp_path: Path) -> None:
    """SIGKILL to the whole process group at a random moment of progress, again and again; then compared."""
    seed = int(os.environ.get("TANDEMQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"TANDEMQ_SEED={seed}")
    rng = random.Random(seed)
    broker = cluster.add_broker()
    cluster.create_topic(broker, "crashed", 2)
    bodies = make_store(tmp_path / "store", 1500 * ROUNDS, rng)
    lake, checkpoints = tmp_path / "lake", tmp_path / "checkpoints"
    checkpoints.mkdir()
    command = [
        sys.executable, str(Path(__file__).with_name("crash_driver.py")), str(tmp_path / "store"), str(lake),
        str(checkpoints), cluster.nameserver, "crashed",
    ]  # fmt: skip
    kills = 0
    while kills < ROUNDS:
        watched = ("sink", "archive")[kills % 2]
        before = batches_done(checkpoints, watched)
        driver = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        # Let it live until the sink or the archive has begun one or two more batches, then a random moment longer.
        wanted, waiting = before + rng.randint(1, 2), threading.Event()
        for _ in range(2400):
            if batches_done(checkpoints, watched) >= wanted or driver.poll() is not None:
                break
            waiting.wait(0.05)
        waiting.wait(rng.random() * 0.4)
        ended = driver.poll() is not None
        if not ended:
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        kills += 1
        print(f"kill {kills} of {ROUNDS}, {batches_done(checkpoints, watched)} batches of the {watched} begun")
        if ended:
            break
    # On a very busy machine Spark gives up on workers that start too slowly: one more crash, so one more life.
    for _ in range(4):
        final = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if "caught up" in final.stdout:
            break
    assert "caught up" in final.stdout, final.stderr[-3000:]
    archived = []
    for file in Lake(str(lake)).files()[1]:
        archived += pq.read_table(lake / file["path"], columns=["body"]).column(0).to_pylist()
    assert sorted(archived) == sorted(bodies)
    assert sorted(topic_bodies(cluster, "crashed")) == sorted(bodies)
    assert kills >= ROUNDS, f"the data was too small: caught up after {kills} kills"


def topic_bodies(cluster: Any, topic: str) -> list[bytes]:
    access = BrokerAccess(parse(PullOptions, {"nameserver": cluster.nameserver, "subscribe": topic}))
    ranges = access.ranges()
    found: list[bytes] = []
    for piece in slices_of({q: r.first for q, r in ranges.items()}, {q: r.next for q, r in ranges.items()}):
        for batch in access.read(piece, Decoder(default_arrow_schema(["body"])), 10_000, False):
            found += batch.column(0).to_pylist()
    return found
