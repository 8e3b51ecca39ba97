"""The store against a plain list, under random operations and power cuts at random places.

A failure prints its seed: `pytest tests/property/test_store_model.py -k 'seed and 123'` replays it (SEEDS may be
extended by TANDEMQ_SEEDS=from-to).

What months of running did to a store (fifteen trials of a long life), and which model finds it (the soak is
bench/soak.py, of which tests/fault/test_soak.py runs two minutes; the simulator is tests/sim). `test_store_mutants.py`
puts back what this model says it finds: a seed finds each.

     1  an empty slave of a master that has deleted files   not here: two nodes; test_pair_long_life.py, soak
     2  numbers of a queue whose messages expired       `retain`, `kill`, `power_cut`, `lose_files`, `copy`
     3  a topic deleted and made anew                   `delete_topic`, `copy`, `take_over`; soak
     4  a timer at the limit of its properties          not here: a service; test_timers.py, of real messages
     5  a smaller maxMessageSize                        not here: a setting of clients; test_timers.py
     6  timers longer than retention                    not here: services; test_waiting_messages.py, soak
     7  clocks that are set                             `jump_clock`; services: test_services_power_cut.py
     8  a full disk while a slave leaves                not here: two nodes; test_pair_long_life.py
     9  no descriptor left                              not here: of a process; test_disk.py, test_flush.py
    10  a table on a full disk                          not here: a broker's table; test_table_file.py
    11  fileReservedTime changed at run time            not here: a setting; test_cleaner.py
    12  an old confirmed offset                         `open` with 0 or an older one, `kill`; soak
    13  files missing or zeroed                         `lose_files`
    14  the log not mounted                             `lose_log`
    15  full disks at every save                        `fill_disk`; wrong files: test_table_file.py, test_snapshots.py;
                                                       a full disk under the index alone: test_writer.py
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from tandemq.errors import CorruptLog, DiskFull, StoreError
from tandemq.formats import batch
from tandemq.formats.batch import encode_batch, parse_batch
from tandemq.formats.log_mark import TopicDeleted
from tandemq.formats.record import parse_record
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk, PowerCut
from tandemq.store import commit_log, dispatch, record_runs, views
from tandemq.store.config import StoreConfig
from tandemq.store.flush import Flusher
from tandemq.store.message_store import Appended, MessageStore

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
    deletions: list[tuple[int, str]] = field(default_factory=list)
    """(position, topic) of topics that were deleted."""
    first: int = 0
    """What lies below has expired."""
    settled: int = 0
    """Nothing below is cut any more: what was deleted for good was confirmed."""
    durable: int = 0
    """Everything below was promised to survive."""
    next_key: int = 0

    def copy(self) -> "Model":
        return replace(self, records=list(self.records), deletions=list(self.deletions))

    def cut(self, offset: int) -> None:
        self.records = [r for r in self.records if r[0].physical_offset < offset]
        self.deletions = [d for d in self.deletions if d[0] < offset]
        self.durable = min(self.durable, offset)

    @property
    def there(self) -> list[tuple[Appended, str, int, str, bytes]]:
        """Those that have not expired."""
        return [record for record in self.records if record[0].physical_offset >= self.first]

    def queue(self, topic: str, queue_id: int) -> list[tuple[Appended, bytes]]:
        """All messages a queue ever had since its topic was made, expired ones too."""
        made = max((position for position, deleted in self.deletions if deleted == topic), default=-1)
        return [
            (done, raw)
            for done, t, q, _, raw in self.records
            if (t, q) == (topic, queue_id) and done.physical_offset > made
        ]

    def readable(self, topic: str, queue_id: int) -> list[bytes]:
        return [raw for done, raw in self.queue(topic, queue_id) if done.physical_offset >= self.first]


class Machine:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.disk = CrashableDisk()
        self.model = Model()
        self.rebuild: Iterator[Callable[[], None]] | None = None
        self.was_full = False
        self.calls: list[Callable[[], None]] = []
        """What the store wants to go on with in a later turn of its owner's loop."""
        self.store = self.open()

    def open(self) -> MessageStore:
        """A replica may know an old confirmed offset only: what lies behind it is shown when it is confirmed again."""
        self.rebuild = None
        self.was_full = False
        confirmed = self.random.choice((None, 0, self.model.durable))
        self.calls.clear()
        store = MessageStore.open(
            ROOT, CONFIG, clock=self.clock, disk=self.disk, store_host=HOST, confirmed=confirmed, post=self.calls.append
        )
        if confirmed is not None:
            assert store.dispatched <= store.readable_limit
            store.number_undispatched()
            if self.random.random() < 0.5:
                store.set_confirmed(None)
        return store

    def confirm(self) -> None:
        self.store.set_confirmed(None)

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
        raw = bytes(self.store.reader.read_raw(done.physical_offset, limit=self.store.appended))
        assert parse_record(raw, crc=True).queue_offset == done.queue_offset
        assert done.queue_offset == len(self.model.queue(topic, queue_id)), "numbers go on, whatever has expired"
        self.model.records.append((done, topic, queue_id, key, raw))
        self.clock.advance(self.random.random())

    def dispatch(self) -> None:
        self.store.dispatch(self.random.choice((1, 500, 1 << 20)))

    def turn(self) -> None:
        """A turn of the owner's loop: one more queue goes into its files."""
        if self.calls:
            self.calls.pop(0)()

    def flush(self) -> None:
        self.store.flush_once()
        self.model.durable = self.store.appended
        self.store.prepare()

    def flush_all(self) -> None:
        self.store.flush_all()
        assert self.store._views._durable_offset == self.store.dispatched, "a checkpoint vouches for all views"
        self.model.durable = self.store.appended

    def rebuild_step(self) -> None:
        """One step of building the views anew, everything else going on between the steps."""
        self.confirm()
        if self.rebuild is None:
            self.rebuild = self.store.rebuild_views(self.random.choice((1, 900, 1 << 20))).steps()
        problem, work = "", None
        try:
            work = next(self.rebuild, None)
            if work is not None:
                work()
        except DiskFull:
            self.rebuild = None  # whoever asked for it asks again
            raise
        except StoreError as error:
            problem = str(error)
        assert not problem or "the log was cut" in problem
        if work is None:
            self.rebuild = None

    def rebuild_whole(self) -> None:
        self.rebuild_step()
        while self.rebuild is not None:
            self.rebuild_step()

    def delete_topic(self) -> None:
        topic = self.random.choice(TOPICS)
        self.model.deletions.append((self.store.append_mark(TopicDeleted(topic)).physical_offset, topic))

    def retain(self) -> None:
        """Everything that may go goes, one file or all; the log says what only they told."""
        if self.random.random() < 0.3:
            now = self.clock.wall_ms() + 100 * 3_600_000
            self.store.retain(now, self.random.random() < 0.5, self.store.append_mark)
            self.model.first = self.store.first_offset
            self.model.settled = self.store.appended

    def jump_clock(self) -> None:
        """Somebody sets the clock, back too: offsets and queues don't care."""
        self.clock.jump_wall(self.random.randrange(-48, 48) * 3_600_000)

    def fill_disk(self) -> None:
        """The disk is full for a while, at whatever a few operations want to save; then there is room again."""
        self.disk.capacity = self.disk.usage(ROOT)[0] + self.random.choice((0, 100, 3000))
        for _ in range(self.random.randrange(1, 6)):
            operation = self.random.choice(
                (
                    self.append, self.dispatch, self.flush, self.flush_all, self.delete_topic, self.truncate,
                    self.retain, self.rebuild_step, self.turn, self.confirm,
                )
            )  # fmt: skip
            with suppress(DiskFull):
                operation()
        self.disk.capacity = None
        self.was_full = True  # views that the disk had no room for are dispatched again at the next start
        self.store.retain(self.clock.wall_ms() - 1000 * 3_600_000)
        assert self.store.health.writable

    def lose_log(self) -> None:
        """The directory of the log is not mounted: a store that had messages is refused, and nothing of it goes."""
        if self.random.random() < 0.7 or not self.model.there:
            return
        self.confirm()
        self.store.close()
        gone = {path: file for path, file in self.disk.files.items() if path.parts[2] == "commitlog"}
        for path in gone:
            del self.disk.files[path]
        with pytest.raises(CorruptLog, match="holds no log"):
            MessageStore.open(ROOT, CONFIG, clock=self.clock, disk=self.disk, store_host=HOST)
        self.disk.files.update(gone)
        self.store = self.open()
        self.model.durable = self.store.appended
        self.check()

    def lose_files(self) -> None:
        """Somebody removes files of a store that is closed, or the process is killed before: all is derived again."""
        if self.random.random() < 0.5:
            self.store.close()
        else:
            self.store.abandon()
            self.disk = self.disk.after_crash(keep_all=True)
        derived = sorted(p for p in self.disk.files if p.parts[2] in ("consumequeue", "index", "checkpoint"))
        for path in self.random.sample(derived, min(len(derived), self.random.randrange(1, 4))):
            if self.random.random() < 0.5 or path.name == "checkpoint":
                self.disk.remove(path)
            else:
                self.disk.files[path].data[:] = bytes(len(self.disk.files[path].data))
        self.store = self.open()
        self.check()

    def copy(self) -> None:
        """A new replica copies the log from its first offset on and has the same queues, empty ones too."""
        self.store.mention_idle_queues(self.store.append_mark)
        self.confirm()
        while self.store.dispatch():
            pass
        clock, disk = self.clock, CrashableDisk()
        copy = MessageStore.open(ROOT, CONFIG, clock=clock, disk=disk, store_host=HOST)
        copy.reset(self.store.first_offset)
        position = self.store.first_offset
        while position < self.store.appended:
            size = min(self.random.randrange(1, 3000), self.store.appended - position, 4096 - position % 4096)
            position = copy.append_raw(position, self.store.slice(position, size))
            if self.random.random() < 0.2:
                copy.dispatch()
        while copy.dispatch():
            pass
        if self.random.random() < 0.5:
            copy.close()
            copy = MessageStore.open(ROOT, CONFIG, clock=clock, disk=disk, store_host=HOST)
        copy.number_undispatched()
        for topic in TOPICS:
            for queue_id in range(2):
                expected = len(self.model.queue(topic, queue_id))
                assert copy.reader.queue_range(topic, queue_id)[1] == expected, (topic, queue_id)
                assert copy.queue_end(topic, queue_id) == expected
        if self.random.random() < 0.3:
            self.take_over(copy, disk)
        else:
            copy.abandon()

    def take_over(self, copy: MessageStore, disk: CrashableDisk) -> None:
        """The new replica is promoted, its log durable as it must be: it writes from here on, with files of its own."""
        self.store.abandon()
        self.store, self.disk = copy, disk
        self.rebuild, self.was_full = None, False
        copy.flush_once()
        self.model.durable = copy.appended
        self.model.settled = copy.appended  # the marks it was told numbers by were confirmed, or it was not promoted
        self.check()

    def truncate(self) -> None:
        there = [record for record in self.model.there if record[0].physical_offset >= self.model.settled]
        if there and self.random.random() < 0.5:
            offset = self.random.choice(there)[0].physical_offset
            self.store.truncate(offset)
            self.model.cut(offset)
            self.model.durable = self.store.flushed  # a cut promises nothing of what stays

    def reopen(self) -> None:
        is_limited = self.store.readable_limit < self.store.appended or self.was_full
        self.store.close()
        self.store = self.open()
        assert self.store.recovered is not None
        assert self.store.recovered.clean or is_limited
        self.model.durable = self.store.appended
        self.check()

    def kill(self) -> None:
        """The process dies, the machine lives: nothing that was appended is lost, what readers were shown they see."""
        shown = self.store.readable_limit
        self.store.set_confirmed(shown)
        self.store.abandon()
        self.disk = self.disk.after_crash(keep_all=True)
        self.store = self.open()
        assert self.store.readable_limit >= shown
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
        self.model.first = self.store.first_offset
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
            (
                self.append, self.flush, self.flush_all, self.truncate, self.reopen, self.rebuild_whole,
                self.delete_topic, self.dispatch, self.retain, self.turn,
            )
        )  # fmt: skip
        before = self.model.copy()
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
        if self.random.random() < 0.5:
            self.confirm()
        while store.dispatch():
            pass
        if store.dispatched < store.appended:
            return  # a replica that waits for its confirmed offset; it is looked at when it has it
        for done, topic, _, key, raw in model.there:
            assert bytes(store.reader.read_raw(done.physical_offset)) == raw
            if key:
                assert raw in [
                    bytes(store.reader.read_raw(m.physical_offset))
                    for m in store.reader.query(topic, key, 9, 0, FOREVER)
                ]
        for topic in TOPICS:
            for queue_id in range(2):
                assert self.read_queue(topic, queue_id) == model.readable(topic, queue_id)
                assert store.reader.queue_range(topic, queue_id)[1] == len(model.queue(topic, queue_id))
            expected = [raw for _, t, _, key, raw in model.there if t == topic and key]
            found = [
                bytes(store.reader.read_raw(m.physical_offset))
                for m in store.reader.query(topic, "shared", 64, 0, FOREVER)
            ]
            assert found == expected[::-1][:64]

    def read_queue(self, topic: str, queue_id: int) -> list[bytes]:
        position, found = self.store.reader.queue_range(topic, queue_id)[0], []
        while True:
            result = self.store.reader.get(topic, queue_id, position, 7, 3000)
            if not result.count:
                return found
            position = result.next_offset
            for piece in result.slices:
                at = 0
                while at < len(piece):
                    size = int.from_bytes(piece[at : at + 4], "big")
                    found.append(bytes(piece[at : at + size]))
                    at += size


def live(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a store live through 120 operations.

    Every other seed takes even the smallest batch and the shortest run of records as it takes large ones. Every third
    hands its views over queue by queue, with everything else in between, as a broker with very many queues does.
    """
    if seed % 3 == 0:
        monkeypatch.setattr(Flusher, "is_posting", True)
        monkeypatch.setattr(views, "SLICE_SECONDS", 0.0)
    if seed % 2:
        for module, name in (
            (batch, "LARGE_COUNT_MIN"), (commit_log, "WRITE_SIZE_MIN"), (dispatch, "MANY_SIZE_MIN"),
            (record_runs, "ROWS_MIN"),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, 1)
    machine = Machine(seed)
    weighted = (
        [machine.append] * 12
        + [machine.batch] * 2
        + [machine.dispatch, machine.rebuild_step] * 4
        + [machine.turn] * (6 if seed % 3 == 0 else 0)
        + [machine.flush, machine.flush_all, machine.truncate, machine.reopen, machine.kill]
        + [machine.power_cut, machine.power_cut_within, machine.delete_topic, machine.retain, machine.retain]
        + [machine.lose_files, machine.copy, machine.confirm, machine.jump_clock, machine.fill_disk, machine.lose_log]
    )
    for _ in range(120):
        machine.random.choice(weighted)()
    machine.confirm()
    machine.check()


@pytest.mark.parametrize("seed", seeds())
def test_store_agrees_with_a_plain_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was durable survives every cut, nothing appears that was not appended, queues and index follow the log."""
    live(seed, monkeypatch)


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
    assert store.reader.queue_range("plain", 0) == (0, count)
    store.retain()
    assert store.health.writable
    assert store.append("plain", 0, 0, 0, 1, HOST, 0, 0, b"again", b"").queue_offset == count
