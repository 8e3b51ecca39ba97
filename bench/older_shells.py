"""The shells of a master and a slave beside those of an older commit: processor time per message, without sockets.

    python -m bench.older_shells a4c35a9 [--rounds 7]     of both, and old / new for every path

What a synchronous send costs the loops besides the sockets: the master hands bytes out and takes the acknowledgement,
which answers the send and moves what readers see; the slave takes the frame and acknowledges it. A change of
replication that is meant to change no speed is measured with this: no ratio below 0.95. Each round is a process of its
own that runs this same file against one of the two trees, so it uses only what both have.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tandemq.clock import SystemClock
from tandemq.codec import ha_session as ha
from tandemq.codec.ha_session import EpochItem, Hello, Preamble, Start
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.hands import StoreHands
from tandemq.replication.node import ReplicaNode
from tandemq.store.config import StoreConfig
from tandemq.store.disk import FileDisk
from tandemq.store.message_store import MessageStore

ROOT = Path(__file__).parents[1]
BODY = bytes(1024)
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
MESSAGES = 6_000
SAMPLE = 50
TOGETHER = 32
"""Sends in flight of the path with many."""
SESSION, SLAVE = 1, "b:1#1"


def main() -> None:
    from bench.older import both_trees  # not where one tree alone is measured

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the older commit")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    with both_trees(given.commit) as sides:
        for number in range(given.rounds):
            for side in sorted(sides, reverse=number % 2 == 1):
                found[side].append(_measured(sides[side]))
    print(f"{'path':<28}{'old µs':>9}{'new µs':>9}{'old/new':>9}")
    for path in found["new"][0]:
        old, new = (min(one[path] for one in found[side]) for side in ("old", "new"))
        print(f"{path:<28}{old:>9.2f}{new:>9.2f}{old / new:>9.2f}")


def _measured(source: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(source), "TANDEMQ_OLDER_ROUND": "1"}
    output = subprocess.run([sys.executable, __file__], check=True, env=environment, stdout=subprocess.PIPE).stdout
    return dict(json.loads(output.splitlines()[-1]))


# -- one round, against whichever tree is on the path


class Wire:
    """A connection that takes everything."""

    is_open = is_clear = is_ready = True
    can_splice = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None: ...

    def lose(self, text: str) -> None:
        raise AssertionError(text)


class MasterEnd:
    """A master's shell with a store, and a slave that acknowledges what it is sent."""

    def __init__(self, directory: Path) -> None:
        self.store = MessageStore.open(directory, StoreConfig())
        self.acks = AckQueue(group_size=2)
        callbacks: Any = SimpleNamespace(
            opened=_nothing, closed=_nothing, readable=_nothing, recorded=_nothing, proposed=_nothing
        )
        self.node = ReplicaNode(
            self.store, directory, ReplicationConfig(), self.acks, SystemClock(), callbacks,
            group="g", address="a:1", sync_flush=False,
        )  # fmt: skip
        self.wire = Wire()
        self.told = 0

    async def start(self) -> None:
        await self.node.be_master("127.0.0.1", 0, AckLevel(2), strict=False, ask=frozenset())
        assert self.node.master is not None
        self.shell: Any = self.node.master
        self.shell._wires[SESSION] = self.wire
        self.shell._connected(SESSION, "10.0.0.9:1")
        self.hear(Preamble(ha.VERSION, "nonce"))
        (challenge,) = ha.SessionReader().feed(self.wire.sent[-1])
        assert isinstance(challenge, ha.Challenge)
        proof = ha.key_proof("", "slave", "nonce", challenge.nonce, SLAVE)
        end, promise = self.store.appended, (challenge.number, challenge.id)
        self.hear(
            Hello(
                group="g", replica=SLAVE, proof=proof, address="b:1", segment_size=self.store.segment_size, first=0,
                end=end, durable=end, promised_number=promise[0], promised_id=promise[1], history=[], members=[],
                registers=True,
            )
        )  # fmt: skip
        self.hear(Start(challenge.number, end, end))
        self.number = challenge.number
        for _ in range(8):  # it joins, becomes a member, comes in sync: each time the register says so
            register = self.shell.state.register
            self.hear(ha.Registered(register.epoch, register.revision))
            self.ack()
        state = self.shell.state.sessions[SESSION].state.value
        assert state == "in sync", state

    def hear(self, message: ha.Control) -> None:
        self.shell._received(SESSION, memoryview(ha.encode_control(message)))

    def ack(self) -> None:
        end = self.store.appended
        self.shell._received(SESSION, memoryview(ha.encode_ack(self.number, end, 0, end)))

    def done(self, status: Any, reason: str) -> None:
        self.told += 1

    def turn(self, count: int) -> float:
        """So many sends, one frame, one acknowledgement; the processor time without the appends."""
        now = time.monotonic()
        for _ in range(count):
            self.store.append("T", 0, 0, 0, 1, HOST, 0, 0, BODY, b"")
            end = self.store.appended
            self.acks.add(end, AckLevel(2), False, now + 60, self.done, now)
        began = time.process_time()
        self.node.appended()
        self.ack()
        return time.process_time() - began


class SlaveEnd:
    """A slave's shell with a store, fed with a master's frames."""

    def __init__(self, directory: Path) -> None:
        from tandemq.replication.epochs import Promise, ReplicaRecord, from_items
        from tandemq.replication.slave import SlaveShell
        from tandemq.replication.slave_state import SlaveState

        try:
            from tandemq.replication.following.core import SlaveTerms
        except ImportError:  # the older tree
            from tandemq.replication.slave_state import SlaveTerms  # type: ignore[attr-defined, no-redef]
        self.store = MessageStore.open(directory, StoreConfig())
        hands = StoreHands(self.store, FileDisk(1), directory, SystemClock())
        history = from_items([EpochItem(1, "e1", 0)])
        record = ReplicaRecord(SLAVE, history=history, promise=Promise(1, "e1"))
        self.state = SlaveState(
            record=record, terms=SlaveTerms("g"), log=hands.log_ends(), new_id=lambda: "nonce", now=0.0
        )
        self.shell: Any = SlaveShell(
            lambda extended: self.state, hands, SystemClock(), _nothing, reconnect_max=1.0,  # type: ignore[arg-type]
            on_readable=_nothing, on_saved=lambda record: None,
        )  # fmt: skip
        self.wire = Wire()
        self.shell._wire = self.wire
        self.state.connected(SESSION, 0.0)
        proof = ha.key_proof("", "master", "nonce", "theirs", "g")
        self.hear(ha.encode_control(ha.Challenge(ha.VERSION, "theirs", proof, 1, "e1", "a:1#1", None)))
        self.hear(ha.encode_control(ha.Welcome("a:1#1", True, 1, "e1", 0, 0, 0, [EpochItem(1, "e1", 0)], [], [])))
        assert self.state.phase.value == "following", self.state.phase

    def hear(self, data: bytes) -> None:
        self.wire.recv_into = lambda buffer: _put(buffer, data)  # type: ignore[attr-defined]
        self.shell._read()

    def turn(self, body: bytes) -> float:
        end = self.store.appended
        frame = ha.encode_data_header(1, end, end, body) + body
        began = time.process_time()
        self.hear(frame)
        took = time.process_time() - began
        assert self.store.appended == end + len(body)
        return took


def _put(buffer: bytearray, data: bytes) -> int:
    buffer[: len(data)] = data
    return len(data)


def _nothing(*given: Any) -> Any:
    return None


async def one_round(directory: Path) -> dict[str, float]:
    """Returns microseconds of processor time per message of every path."""
    master = MasterEnd(directory / "master")
    await master.start()
    slave = SlaveEnd(directory / "slave")
    figures: dict[str, list[float]] = {"master, a lone send": [], "master, 32 together": [], "slave, 1 KiB": []}
    for _ in range(MESSAGES // SAMPLE):
        figures["master, a lone send"].append(sum(master.turn(1) for _ in range(SAMPLE)) / SAMPLE)
        figures["slave, 1 KiB"].append(sum(slave.turn(BODY) for _ in range(SAMPLE)) / SAMPLE)
    for _ in range(MESSAGES // SAMPLE):
        figures["master, 32 together"].append(sum(master.turn(TOGETHER) for _ in range(4)) / (4 * TOGETHER))
        await asyncio.sleep(0)
    assert master.told == MESSAGES + MESSAGES // SAMPLE * 4 * TOGETHER, master.told
    await master.node.leave_role()
    master.store.abandon()
    slave.store.abandon()
    # The lower decile: a busy machine makes samples longer, never shorter.
    return {path: statistics.quantiles(samples, n=10)[0] * 1e6 for path, samples in figures.items()}


if __name__ == "__main__":
    if "TANDEMQ_OLDER_ROUND" in os.environ:
        with tempfile.TemporaryDirectory(prefix="tandemq-older-") as place:
            print(json.dumps(asyncio.run(one_round(Path(place)))))
    else:
        main()
