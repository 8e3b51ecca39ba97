"""SIGKILL to the driver, the JVM, the Python workers and the broker, again and again, during a streaming sink and an
archive: nothing lost, nothing twice.

    python -m bench.spark_kills --rounds 20 [--victims driver,jvm,workers,broker] [--seed N] [--out FILE]

One store is archived to a lake and streamed into a topic with `exactly_once`, by one driver at the same time. A kill
counts for each of the two that had a micro-batch under way; every victim gets its rounds for both. A killed driver or
JVM is started again on its checkpoints, a killed broker on its files; workers are Spark's to replace. At the end the
lake's Parquet files and the topic's queues are compared with the store without Spark. Exit code 1 if they differ.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.peers import servers

from tandemq.client.blocking_cluster import BlockingCluster, ClusterAccess
from tandemq.client.bulk import QueueReader
from tandemq.formats.record import encode_record, parse_record, walk
from tandemq.model.message import encode_properties
from tandemq.spark.lake.table import Lake
from tandemq.testing.waiting import wait_until

VICTIMS = ("workers", "broker", "jvm", "driver")
QUERIES = ("sink", "archive")
TOPIC = "killed"
QUEUES = 2
SEGMENT = 1 << 20
MESSAGES_PER_KILL = 3000
BYTES_PER_TRIGGER = 150_000
"""Of lives that will be killed: micro-batches of a second or less, so that every life has several."""
BYTES_AT_LAST = 20_000_000
BATCH_SECONDS = 240.0
LIVES_THAT_FAIL_MAX = 5
"""On a very busy machine Spark gives up on workers that start too slowly: that is one more crash, and one more life."""


@dataclass
class Outcome:
    """What was done and what came of it."""

    seed: int
    messages: int
    kills: Counter[str] = field(default_factory=Counter)
    """By "victim during query"."""
    lives: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    twice: dict[str, int] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not any((*self.lost.values(), *self.twice.values(), *self.foreign.values()))

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "messages": self.messages,
            "kills": dict(sorted(self.kills.items())),
            "lives of the driver": self.lives,
            **{f"{name} in the {query}": getattr(self, name)[query] for name in ("lost", "twice", "foreign")
               for query in ("lake", "topic")},
        }  # fmt: skip


def make_store(root: Path, count: int, rng: random.Random) -> list[bytes]:
    """Writes a log of `count` messages in segments of 1 MiB; returns their bodies, no two of which are equal."""
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


class Life:
    """A driver with its JVM and workers, from its start until it was killed or has caught up."""

    def __init__(self, command: list[str]) -> None:
        self._driver = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    @property
    def ended(self) -> bool:
        return self._driver.poll() is not None

    @property
    def caught_up(self) -> bool:
        return self._driver.poll() == 0

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
        for pid in (*(pid for pid, _ in self._processes()), self._driver.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._driver.wait()
        assert self._driver.stdout is not None
        self._driver.stdout.close()

    def _processes(self) -> Iterator[tuple[int, bytes]]:
        """Of this driver's session, itself included."""
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                session = int(status.read_text().rsplit(")", 1)[1].split()[3])
                if session == self._driver.pid:
                    yield int(status.parent.name), (status.parent / "cmdline").read_bytes()


class Experiment:
    """One store, one lake, one topic, and a driver that is killed."""

    def __init__(self, directory: Path, running: servers.Servers, rng: random.Random, outcome: Outcome) -> None:
        self._checkpoints = directory / "checkpoints"
        self._checkpoints.mkdir()
        self._broker = running.daemons["broker"]
        self._rng = rng
        self._outcome = outcome
        self._life: Life | None = None
        self._failed = 0
        self._arguments = [
            str(directory / "store"), str(directory / "lake"), str(self._checkpoints), running.namesrv, TOPIC,
        ]  # fmt: skip

    def kill(self, victim: str) -> None:
        """Waits until both queries are at work, then kills."""
        while not self._is_at_work():
            if self._life is not None and self._life.caught_up:
                raise RuntimeError("the store was too small: everything was read before all kills were done")
            self._failed += 1
            if self._failed > LIVES_THAT_FAIL_MAX:
                raise RuntimeError(f"{self._failed} lives of the driver ended by themselves")
            self.close()
        life = self._life
        assert life is not None
        threading.Event().wait(self._rng.random() * 0.4)  # any moment of a batch may be its last
        hit = [query for query in QUERIES if self._under_way(query)]
        if victim == "broker":
            self._broker.kill()
            self._broker.start()
        elif victim == "driver":
            self.close()
        else:
            life.kill(victim)
        if victim == "jvm":
            wait_until(lambda: life.ended, "the driver to end without its JVM", seconds=60)
            self.close()
        self._outcome.kills.update(f"{victim} during the {query}" for query in hit)

    def catch_up(self) -> None:
        """Ends the life that is, and lets one more read all that is left in large micro-batches."""
        self.close()
        for _ in range(LIVES_THAT_FAIL_MAX):
            self._outcome.lives += 1
            final = subprocess.run(self._command(BYTES_AT_LAST), capture_output=True, text=True, timeout=900)
            if "caught up" in final.stdout:
                return
        raise RuntimeError(f"the driver does not catch up: {final.stderr[-3000:]}")

    def close(self) -> None:
        if self._life is not None:
            self._life.close()
            self._life = None

    def _is_at_work(self) -> bool:
        """Returns whether both queries have begun a further micro-batch; False if the driver ended before."""
        if self._life is None or self._life.ended:
            self.close()
            self._outcome.lives += 1
            self._life = Life(self._command(BYTES_PER_TRIGGER))
        life, wanted = self._life, {query: self._count(query, "offsets") + 1 for query in QUERIES}
        wait_until(
            lambda: life.ended or all(self._count(query, "offsets") >= wanted[query] for query in QUERIES),
            f"a further micro-batch of each: {wanted}",
            seconds=BATCH_SECONDS,
        )
        return not life.ended

    def _command(self, bytes_per_trigger: int) -> list[str]:
        return [sys.executable, "-m", "bench.spark_kills_driver", *self._arguments, str(bytes_per_trigger)]

    def _count(self, query: str, what: str) -> int:
        return sum(1 for _ in (self._checkpoints / query / what).glob("[0-9]*"))

    def _under_way(self, query: str) -> bool:
        """Whether a micro-batch has begun and is not complete."""
        return self._count(query, "offsets") > self._count(query, "commits")


def run(directory: Path, victims: Sequence[str], rounds: int, seed: int) -> Outcome:
    """Kills each victim until both queries have had it `rounds` times, then compares."""
    rng = random.Random(seed)
    bodies = make_store(directory / "store", MESSAGES_PER_KILL * (len(victims) * rounds + 2), rng)
    outcome = Outcome(seed, len(bodies))
    with servers.ours(directory / "servers") as running:
        create = [sys.executable, "-m", "tandemq", "topic", "create", TOPIC, "-q", str(QUEUES), "-n", running.namesrv]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
        experiment = Experiment(directory, running, rng, outcome)
        try:
            while left := [v for v in victims if any(outcome.kills[f"{v} during the {q}"] < rounds for q in QUERIES)]:
                victim = min(left, key=lambda v: sum(outcome.kills[f"{v} during the {q}"] for q in QUERIES))
                experiment.kill(victim)
                print(f"{victim} killed; so far {dict(sorted(outcome.kills.items()))}", flush=True)
            experiment.catch_up()
        finally:
            experiment.close()
        found = {"lake": archived_bodies(directory / "lake"), "topic": topic_bodies(running.namesrv)}
    for name, there in found.items():
        counted, expected = Counter(there), set(bodies)
        outcome.lost[name] = len(expected - counted.keys())
        outcome.twice[name] = sum(count - 1 for count in counted.values())
        outcome.foreign[name] = len(counted.keys() - expected)
    return outcome


def archived_bodies(lake: Path) -> list[bytes]:
    """Reads the files that the lake's log names."""
    found: list[bytes] = []
    for file in Lake(str(lake)).files()[1]:
        found += pq.read_table(lake / file["path"], columns=["body"]).column(0).to_pylist()
    return found


def topic_bodies(nameserver: str) -> list[bytes]:
    """Pulls all queues of the topic from the master."""
    route = BlockingCluster(ClusterAccess(namesrv=nameserver)).route(TOPIC)
    assert route is not None
    master = route.groups[0].master
    assert master is not None
    found: list[bytes] = []
    with QueueReader(master) as reader:
        for queue in range(QUEUES):
            for chunk in reader.read(TOPIC, queue, *reader.range(TOPIC, queue)):
                records = bytes(chunk.records)
                found += (parse_record(records, position).body for position, _, _ in walk(records, 0, len(records)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.spark_kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="kills of each victim during each query, at least")
    parser.add_argument("--victims", default=",".join(VICTIMS), help="which of driver, jvm, workers and broker")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--out", default="", help="a file that the result is added to, as a line of JSON")
    a = parser.parse_args()
    victims = a.victims.split(",")
    if unknown := set(victims) - set(VICTIMS):
        parser.error(f"--victims {a.victims}: {', '.join(sorted(unknown))} is none of {', '.join(VICTIMS)}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tqk-") as directory:
        outcome = run(Path(directory), victims, a.rounds, a.seed)
    told = json.dumps({**outcome.as_json(), "seconds": round(time.monotonic() - began)})
    print(told)
    if a.out:
        with open(a.out, "a") as file:
            file.write(told + "\n")
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
