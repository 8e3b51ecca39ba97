"""Driver, JVM, workers and broker killed again and again during an archive and a streaming sink: nothing lost, nothing
twice. Each kill costs a start of Spark, so a usual run does 2 of the whole driver; TANDEMQ_CRASH_ROUNDS=160 gives each
of the four 20 kills in the middle of the sink and 20 in the middle of the archive.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.peers import servers

from tandemq.formats.record import encode_record
from tandemq.model.message import encode_properties
from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.lake.table import Lake
from tandemq.spark.options import PullOptions, parse
from tandemq.spark.source.broker_queues import BrokerAccess
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.offsets import slices_of
from tandemq.testing.waiting import wait_until

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
        wanted = before + rng.randint(1, 2)

        def enough(driver: Any = driver, watched: str = watched, wanted: int = wanted) -> bool:
            return batches_done(checkpoints, watched) >= wanted or driver.poll() is not None

        wait_until(enough, f"{wanted} batches of the {watched}", seconds=120)
        threading.Event().wait(rng.random() * 0.4)  # any moment of a batch may be its last
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
    assert sorted(archived_bodies(lake)) == sorted(bodies)
    assert sorted(topic_bodies(cluster.nameserver, "crashed")) == sorted(bodies)
    assert kills >= ROUNDS, f"the data was too small: caught up after {kills} kills"


class Life:
    """A driver with its JVM and workers, from its start until it was killed or has caught up."""

    def __init__(self, command: list[str]) -> None:
        self._driver = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    @property
    def ended(self) -> bool:
        return self._driver.poll() is not None

    def kill(self, part: str) -> None:
        """SIGKILL to the JVM or to the workers alone: the rest has to cope, or to end."""
        for pid, command in self._processes():
            is_jvm = b"java" in command.split(b"\0")[0]
            is_worker = b"ready_daemon\0pyspark.worker" in command
            if (part == "jvm" and is_jvm) or (part == "workers" and is_worker):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """SIGKILL to all of it that is left: pyspark's daemons have process groups of their own."""
        pids = [pid for pid, _ in self._processes()]
        for pid in (*pids, self._driver.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._driver.wait()

    def _processes(self) -> Iterator[tuple[int, bytes]]:
        """Of this driver's session, itself included."""
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                session = int(status.read_text().rsplit(")", 1)[1].split()[3])
                if session == self._driver.pid:
                    yield int(status.parent.name), (status.parent / "cmdline").read_bytes()


VICTIMS = ("driver", "jvm", "workers", "broker")


@pytest.mark.skipif(
    "TANDEMQ_CRASH_ROUNDS" not in os.environ, reason="takes long: set TANDEMQ_CRASH_ROUNDS, e.g. to 160"
)
@pytest.mark.timeout(900 + 180 * ROUNDS)
def test_kills_of_every_part_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """SIGKILL to all, to the JVM, to workers and to the broker at random moments, again and again; then compared."""
    seed = int(os.environ.get("TANDEMQ_SEED", random.SystemRandom().randrange(10**6)))
    print(f"TANDEMQ_SEED={seed}")
    rng = random.Random(seed)
    bodies = make_store(tmp_path / "store", 1500 * ROUNDS, rng)
    lake, checkpoints = tmp_path / "lake", tmp_path / "checkpoints"
    checkpoints.mkdir()
    with servers.ours(tmp_path / "servers") as running:
        create = [sys.executable, "-m", "tandemq", "topic", "create", "crashed", "-q", "2", "-n", running.namesrv]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
        command = [
            sys.executable, str(Path(__file__).with_name("crash_driver.py")), str(tmp_path / "store"), str(lake),
            str(checkpoints), running.namesrv, "crashed",
        ]  # fmt: skip
        kills = killed_again_and_again(command, checkpoints, running.daemons["broker"], rng)
        caught_up(command)
        assert sorted(archived_bodies(lake)) == sorted(bodies)
        assert sorted(topic_bodies(running.namesrv, "crashed")) == sorted(bodies)
    assert kills >= ROUNDS, f"the data was too small: caught up after {kills} kills"


def killed_again_and_again(command: list[str], checkpoints: Path, broker: servers.Daemon, rng: random.Random) -> int:
    """Returns how many kills there were before the driver had caught up or ROUNDS were done."""
    first = rng.randrange(len(VICTIMS))
    for kills in range(ROUNDS):
        watched = ("sink", "archive")[(kills + kills // len(VICTIMS)) % 2]
        victim = VICTIMS[(first + kills) % len(VICTIMS)]
        with contextlib.closing(Life(command)) as life:
            # It lives until the sink or the archive has begun one or two more batches, then a random moment longer.
            await_batches(life, checkpoints, watched, batches_done(checkpoints, watched) + rng.randint(1, 2))
            threading.Event().wait(rng.random() * 0.4)  # any moment of a batch may be its last
            if life.ended:
                return kills
            if victim == "broker":
                broker.kill()
                broker.start()
            elif victim != "driver":
                life.kill(victim)
            if victim in ("broker", "workers"):  # the others go on without a driver's help
                await_batches(life, checkpoints, watched, batches_done(checkpoints, watched) + 1)
        print(f"kill {kills + 1} of {ROUNDS}: {victim}, {batches_done(checkpoints, watched)} batches of the {watched}")
    return ROUNDS


def await_batches(life: Life, checkpoints: Path, watched: str, wanted: int) -> None:
    wait_until(
        lambda: batches_done(checkpoints, watched) >= wanted or life.ended,
        f"{wanted} batches of the {watched}",
        seconds=180,
    )


def caught_up(command: list[str]) -> None:
    # On a very busy machine Spark gives up on workers that start too slowly: one more crash, so one more life.
    for _ in range(4):
        final = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if "caught up" in final.stdout:
            break
    assert "caught up" in final.stdout, final.stderr[-3000:]


def archived_bodies(lake: Path) -> list[bytes]:
    found: list[bytes] = []
    for file in Lake(str(lake)).files()[1]:
        found += pq.read_table(lake / file["path"], columns=["body"]).column(0).to_pylist()
    return found


def topic_bodies(nameserver: str, topic: str) -> list[bytes]:
    access = BrokerAccess(parse(PullOptions, {"nameserver": nameserver, "subscribe": topic}))
    ranges = access.ranges()
    found: list[bytes] = []
    for piece in slices_of({q: r.first for q, r in ranges.items()}, {q: r.next for q, r in ranges.items()}):
        for batch in access.read(piece, Decoder(default_arrow_schema(["body"])), 10_000, False):
            found += batch.column(0).to_pylist()
    return found
