"""The store against a plain list, under random operations and power cuts at random places.

A failure prints its seed: `pytest tests/property/test_store_model.py -k 'seed and 123'` replays it (SEEDS may be
extended by TANDEMQ_SEEDS=from-to).
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from tandemq.codec import batch
from tandemq.codec.batch import encode_batch, parse_batch
from tandemq.codec.record import parse_record
from tandemq.errors import DiskFull, StoreError
from tandemq.store import alike, commit_log, dispatch
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import Appended, MessageStore
from tandemq.testing.clock import ManualClock
from tandemq.testing.disk import CrashableDisk, PowerCut

pytestmark = pytest.mark.exhaustive

ROOT = Path("/store")
CONFIG = StoreConfig(
    commit_log_segment_size=4096,
    consume_queue_segment_size=12 * 20,
    index_slots=13,
    index_entries=40,
    message_size_max=3000,
    pending_views_max=400,
)
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
HOST_V6 = bytes(range(16)) + bytes((0, 0, 0, 9))
TOPICS = ("plain", "other", "%RETRY%" + "g" * 130)
FOREVER = 1 << 62


def seeds() -> range:
    start, _, stop = os.environ.get("TANDEMQ_SEEDS", "0-80").partition("-")
    return range(int(start), int(stop))


@dataclass
class Model:
    """What was appended and not cut: (where it went, topic, queue, key, raw bytes)."""

    records: list[tuple[Appended, str, int, str, bytes]] = field(default_factory=list)
    durable: int = 0
    """Everything below was promised to survive."""
    next_key: int = 0

    def cut(self, offset: int) -> None:
        self.records = [r for r in self.records if r[0].physical_offset < offset]
        self.durable = min(self.durable, offset)

    def queue(self, topic: str, queue_id: int) -> list[bytes]:
        return [raw for _, t, q, _, raw in self.records if (t, q) == (topic, queue_id)]


class Machine:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.disk = CrashableDisk()
        self.model = Model()
        self.rebuild: Iterator[Callable[[], None]] | None = None
        self.store = self.open()

    def open(self) -> MessageStore:
        self.rebuild = None
        return MessageStore.open(ROOT, CONFIG, clock=self.clock, disk=self.disk, store_host=HOST)

    # -- operations

    def append(self) -> None:
        topic, queue_id = self.random.choice(TOPICS), self.random.randrange(2)
        key = f"key-{self.model.next_key:06d}" if self.random.random() < 0.7 else f"k{self.model.next_key}"
        self.model.next_key += 1
        body = self.random.randbytes(self.random.choice((0, 1, 30, 300, 700)))
        properties = f"KEYS\x01{key} shared\x02TAGS\x01t{queue_id}\x02".encode()
        born = self.random.choice((HOST, HOST_V6))
        done = self.store.append(topic, queue_id, 7, 0, 5, born, 0, 0, body, properties)
        self.note(done, topic, queue_id, key)

    def batch(self) -> None:
        topic, count = TOPICS[0], self.random.randrange(1, 6)
        elements = [(i, self.random.randbytes(40), b"") for i in range(count)]
        done = self.store.append_batch(topic, 1, 0, 5, HOST, 0, parse_batch(encode_batch(elements)))
        for number, (start, stop) in enumerate(pairwise([*done.physical_offsets, done.end])):
            one = Appended(start, stop - start, done.queue_offset + number, done.store_timestamp)
            self.note(one, topic, 1, "")

    def note(self, done: Appended, topic: str, queue_id: int, key: str) -> None:
        raw = bytes(self.store.read_raw(done.physical_offset, limit=self.store.appended))
        assert parse_record(raw, crc=True).queue_offset == done.queue_offset
        self.model.records.append((done, topic, queue_id, key, raw))
        self.clock.advance(self.random.random())

    def dispatch(self) -> None:
        self.store.dispatch(self.random.choice((1, 500, 1 << 20)))

    def flush(self) -> None:
        self.store.flush_once()
        self.model.durable = self.store.appended

    def flush_all(self) -> None:
        self.store.flush_all()
        self.model.durable = self.store.appended

    def rebuild_step(self) -> None:
        """One step of building the views anew, everything else going on between the steps."""
        if self.rebuild is None:
            self.rebuild = self.store.rebuild_views(self.random.choice((1, 900, 1 << 20))).steps()
        problem, work = "", None
        try:
            work = next(self.rebuild, None)
        except StoreError as error:
            problem = str(error)
        assert not problem or "the log was cut" in problem
        if work is None:
            self.rebuild = None
        else:
            work()

    def rebuild_whole(self) -> None:
        self.rebuild_step()
        while self.rebuild is not None:
            self.rebuild_step()

    def truncate(self) -> None:
        if self.model.records and self.random.random() < 0.5:
            offset = self.random.choice(self.model.records)[0].physical_offset
            self.store.truncate(offset)
            self.model.cut(offset)
            self.model.durable = offset

    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()
        assert self.store.recovered is not None
        assert self.store.recovered.clean
        self.model.durable = self.store.appended
        self.check()

    def kill(self) -> None:
        """The process dies, the machine lives: nothing that was appended is lost."""
        self.store.abandon()
        self.disk = self.disk.after_crash(keep_all=True)
        self.store = self.open()
        end = self.model.records[-1][0] if self.model.records else None
        assert end is None or self.store.appended >= end.physical_offset + end.size
        self.check()

    def power_cut(self) -> None:
        self.store.abandon()
        self.disk = self.disk.after_crash(self.random if self.random.random() < 0.8 else None)
        self.after_power_cut(self.model.durable)

    def after_power_cut(self, durable: int) -> None:
        self.store = self.open()
        end = self.store.appended
        assert end >= durable, f"the log ends at {end}, everything below {durable} was durable"
        self.model.cut(end)
        last = self.model.records[-1][0] if self.model.records else None
        # A blank may follow the last record; anything else would be a record out of nowhere.
        assert last is None or end >= last.physical_offset + last.size
        self.model.durable = min(self.model.durable, end)
        self.check()

    def power_cut_within(self) -> None:
        """The machine stops in the middle of an operation, at a random step of it."""
        operation = self.random.choice(
            (self.append, self.flush, self.flush_all, self.truncate, self.reopen, self.rebuild_whole)
        )
        before = Model(list(self.model.records), self.model.durable, self.model.next_key)
        steps = 150 if operation == self.rebuild_whole else 25
        self.disk.crash_at = len(self.disk.steps) + self.random.randrange(steps)
        try:
            operation()
        except PowerCut:
            after = self.model
            self.model = before
            self.model.next_key = after.next_key
            durable = before.durable
            if operation == self.truncate:
                durable = 0  # all or nothing, checked by the enumeration in tests/fault
            self.disk = self.disk.after_crash(self.random)
            self.after_power_cut(durable)
        else:
            self.disk.crash_at = None

    # -- the invariant

    def check(self) -> None:
        store, model = self.store, self.model
        while store.dispatch():
            pass
        for done, topic, queue_id, key, raw in model.records:
            assert bytes(store.read_raw(done.physical_offset)) == raw
            if key:
                assert raw in [bytes(store.read_raw(m.physical_offset)) for m in store.query(topic, key, 9, 0, FOREVER)]
            assert store.queue_range(topic, queue_id)[1] > done.queue_offset
        for topic in TOPICS:
            for queue_id in range(2):
                assert self.read_queue(topic, queue_id) == model.queue(topic, queue_id)
            expected = [raw for _, t, _, key, raw in model.records if t == topic and key]
            found = [bytes(store.read_raw(m.physical_offset)) for m in store.query(topic, "shared", 64, 0, FOREVER)]
            assert found == expected[::-1][:64]

    def read_queue(self, topic: str, queue_id: int) -> list[bytes]:
        position, found = self.store.queue_range(topic, queue_id)[0], []
        while True:
            result = self.store.get(topic, queue_id, position, 7, 3000)
            if not result.count:
                return found
            position = result.next_offset
            for piece in result.slices:
                at = 0
                while at < len(piece):
                    size = int.from_bytes(piece[at : at + 4], "big")
                    found.append(bytes(piece[at : at + size]))
                    at += size


@pytest.mark.parametrize("seed", seeds())
def test_store_agrees_with_a_plain_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was durable survives every cut, nothing appears that was not appended, queues and index follow the log.

    Every other seed takes even the smallest batch and the shortest run of records as it takes large ones.
    """
    if seed % 2:
        for module, name in (
            (batch, "LARGE_COUNT_MIN"), (commit_log, "WRITE_SIZE_MIN"), (dispatch, "MANY_SIZE_MIN"), (alike, "ROWS_MIN")
        ):  # fmt: skip
            monkeypatch.setattr(module, name, 1)
    machine = Machine(seed)
    weighted = (
        [machine.append] * 12
        + [machine.batch] * 2
        + [machine.dispatch, machine.rebuild_step] * 4
        + [machine.flush, machine.flush_all, machine.truncate, machine.reopen, machine.kill]
        + [machine.power_cut, machine.power_cut_within]
    )
    for _ in range(120):
        machine.random.choice(weighted)()
    machine.check()


def test_full_disk_refuses_appends_keeps_reading_and_recovers() -> None:
    """DiskFull comes before anything is written; space given back makes the same store writable again."""
    disk = CrashableDisk(capacity=60_000)
    store = MessageStore.open(ROOT, CONFIG, clock=ManualClock(), disk=disk, store_host=HOST)
    count = 0

    def fill() -> None:
        nonlocal count
        while True:
            store.append("plain", 0, 0, 0, 1, HOST, 0, 0, bytes(500), b"")
            count += 1

    with pytest.raises(DiskFull):
        fill()
    assert not store.health.writable
    with pytest.raises(DiskFull):
        store.append("plain", 0, 0, 0, 1, HOST, 0, 0, b"", b"")
    disk.capacity = 1 << 20
    store.dispatch()
    assert store.queue_range("plain", 0) == (0, count)
    store.retain()
    assert store.health.writable
    assert store.append("plain", 0, 0, 0, 1, HOST, 0, 0, b"again", b"").queue_offset == count
