"""Reads a whole store and says what is wrong with it, changing nothing.

One pass over the log. Every record: sizes, fields, checksum, its own offset. Beside it, in step with the log, the
consume queues (each record has exactly its entry) and the index (each key its entry, in order, every chain complete).
A store that was not closed cleanly may have a torn tail and views that lag: recovery's business, reported as notes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tandemq.clock import SystemClock
from tandemq.codec.envelope import DELAY_UNKNOWN_MS, parse_delay_levels
from tandemq.codec.record import HEAD, MAGIC_BLANK, SIZE_MAGIC, check_record, parse_record
from tandemq.errors import CorruptRecord
from tandemq.model.message import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, StoredMessage
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.store import layout
from tandemq.store.checkpoint import SIZE, CheckpointFile
from tandemq.store.config import StoreConfig
from tandemq.store.consume_queue import ENTRY, FILLER_SIZE, ConsumeQueue
from tandemq.store.disk import Disk
from tandemq.store.dispatch import index_keys, queue_tags_code
from tandemq.store.key_hash import TopicHasher
from tandemq.store.key_index import IndexFile, KeyIndex
from tandemq.store.queues import QueueTable
from tandemq.store.segments import SegmentChain

PROBLEMS_MAX = 200
"""Listed one by one; beyond that they are only counted."""
READ_AHEAD = 1024
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Problem:
    where: str
    what: str


@dataclass(slots=True)
class Report:
    """What a pass over a store found."""

    first_offset: int = 0
    end_offset: int = 0
    segments: int = 0
    records: int = 0
    queues: int = 0
    queue_entries: int = 0
    index_files: int = 0
    index_entries: int = 0
    clean: bool = True
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.problem_count == 0

    def add(self, where: str, what: str) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(where, what))


def verify(disk: Disk, root: Path, config: StoreConfig, progress: Progress | None = None) -> Report:
    """A report; problems are in it, nothing is raised for them."""
    return _Pass(disk, root, config, progress).run()


class _Pass:
    def __init__(self, disk: Disk, root: Path, config: StoreConfig, progress: Progress | None) -> None:
        self._disk, self._root, self._config = disk, root, config
        self._progress = progress
        self._report = Report(clean=disk.file_size(root / layout.ABORT) is None)
        self._chain = SegmentChain(disk, root / layout.COMMIT_LOG, config.commit_log_segment_size, writable=False)
        self._delays = parse_delay_levels(config.message_delay_level)
        self._queues: dict[tuple[str, int], _QueueCheck] = {}
        self._index: _IndexCheck | None = None
        self._lost: list[tuple[int, int]] = []
        """[start, stop) of the log that can't be read: reported once, not once for each entry that points there."""

    def run(self) -> Report:
        report = self._report
        self._chain.load()
        for where, what in self._chain.problems:
            report.add(where, what)
        self._lost += self._chain.missing
        report.segments = len(self._chain.bases)
        report.first_offset = self._chain.first_offset
        self._load_views()
        for message in self._records():
            report.records += 1
            self._check_views(message)
        self._finish()
        self._chain.close()
        return report

    def _load_views(self) -> None:
        table = QueueTable(self._disk, self._root, self._config.consume_queue_file_size, writable=False)
        for queue in table.load():
            self._report.add(f"consumequeue/{queue.topic}/{queue.queue_id}", "its files are damaged or one is missing")
        for key, queue in table.table.items():
            self._queues[key] = _QueueCheck(queue, self._chain.first_offset, self._report, self._lost)
        self._report.queues = len(self._queues)
        self._report.queue_entries = sum(queue.count - queue.first for queue in table.table.values())
        config = self._config
        index = KeyIndex(
            self._disk,
            self._root / layout.INDEX,
            config.index_slots,
            config.index_entries,
            SystemClock().wall_ms,
            writable=False,
        )
        if not index.load():
            self._report.add("index", "a file has another size than the others")
        elif index.names:
            self._index = _IndexCheck(index, self._chain.first_offset, self._report, self._is_ours(), self._lost)

    def _is_ours(self) -> bool:
        """Whether we, and not a RocketMQ broker, wrote the checkpoint last."""
        path = self._root / layout.CHECKPOINT
        if self._disk.file_size(path) is None:
            return False
        point = CheckpointFile(self._disk.read_at(path, 0, SIZE)).read()
        return point.views is not None and point.certain

    def _records(self) -> Iterator[StoredMessage]:
        """Whole and right records in order; what stops the walk is reported."""
        chain, report = self._chain, self._report
        for base in chain.bases:
            view = chain.segment(base).view
            at = 0
            while True:
                report.end_offset = base + at
                if len(view) - at >= 8:
                    size, magic = SIZE_MAGIC.unpack_from(view, at)
                    if magic == MAGIC_BLANK and at + size == len(view):
                        break
                problem = check_record(view, at, len(view))
                if problem is None and HEAD.unpack_from(view, at)[6] != base + at:
                    problem = f"it says it lies at {HEAD.unpack_from(view, at)[6]}"
                if problem is not None:
                    if self._ends_here(base, at, view, problem):
                        return
                    break
                try:
                    message = parse_record(view, at)
                except CorruptRecord as error:
                    report.add(f"commitlog offset {base + at}", str(error))
                else:
                    yield message
                at += HEAD.unpack_from(view, at)[0]
            report.end_offset = base + len(view)
            if self._progress is not None:
                self._progress(base + len(view) - chain.first_offset, chain.end - chain.first_offset)

    def _ends_here(self, base: int, at: int, view: memoryview, problem: str) -> bool:
        """The log ends here, or is damaged here: what follows tells. False if later files hold data to go on with."""
        offset = base + at
        rest = view[at:].tobytes().rstrip(b"\0")
        later = [b for b in self._chain.bases if b > base and any(self._chain.segment(b).view[:8])]
        if not rest and not later:
            return True
        if later:
            self._lost.append((offset, base + len(view)))
        if self._report.clean or later:
            where = f"commitlog/{layout.segment_name(base)} offset {offset}"
            behind = f"; {len(later)} later files hold data" if later else ""
            self._report.add(where, f"{problem}; {len(rest)} bytes follow in this file{behind}")
        else:
            self._report.notes.append(
                f"a torn tail of {len(rest)} bytes at offset {offset} ({problem}): the store was not closed cleanly, "
                "opening it will cut this off"
            )
        return not later

    def _check_views(self, message: StoredMessage) -> None:
        kind = message.sys_flag & TRANSACTION_MASK
        if kind not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            check = self._queues.get((message.topic, message.queue_id))
            if check is not None:
                check.expect(message, queue_tags_code(message, self._delays))
            elif self._report.clean:
                where = f"consumequeue/{message.topic}/{message.queue_id}"
                self._report.add(where, f"missing: the log has its message {message.queue_offset}")
                self._queues[message.topic, message.queue_id] = _QueueCheck.silent()
        if self._index is not None and kind != TRANSACTION_ROLLBACK:
            self._index.expect(message)

    def _finish(self) -> None:
        report = self._report
        lagging = sum(check.finish(report.clean, report.end_offset) for check in self._queues.values())
        lagging_keys = self._index.finish(report.clean, report.end_offset) if self._index is not None else 0
        if lagging or lagging_keys:
            report.notes.append(
                f"{lagging} messages are not in their queues yet, {lagging_keys} keys not in the index: "
                "opening the store will dispatch them"
            )
        if self._index is not None:
            report.index_files = len(self._index.index.names)
            report.index_entries = self._index.entries
            self._index.check_chains()
            self._index.index.close()
        if not report.clean:
            report.notes.append("the store was not closed cleanly (abort marker): a broker will recover it")


class _QueueCheck:
    """One queue against the records of the log, in step."""

    def __init__(self, queue: ConsumeQueue | None, log_start: int, report: Report, lost: list[tuple[int, int]]) -> None:
        self._queue = queue
        self._report = report
        self._lost = lost
        self._next = queue.min_offset(log_start) if queue is not None else 0
        self._missing = 0
        self._read: Iterator[tuple[int, int, int]] = iter(())
        self._read_to = self._next

    @classmethod
    def silent(cls) -> "_QueueCheck":
        """A queue that was reported already."""
        return cls(None, 0, Report(), [])

    @property
    def _where(self) -> str:
        assert self._queue is not None
        return f"consumequeue/{self._queue.topic}/{self._queue.queue_id}"

    def expect(self, message: StoredMessage, tags_code: int) -> None:
        queue = self._queue
        if queue is None or message.queue_offset < self._next:
            return
        if message.queue_offset >= queue.count:
            self._missing += 1
            return
        while self._next < message.queue_offset:
            physical_offset, size, _ = self._entry()
            if size != FILLER_SIZE and not _is_within(physical_offset, self._lost):
                self._report.add(self._where, f"entry {self._next - 1} points to no record of the log")
        found = self._entry()
        expected = (message.physical_offset, message.size, tags_code)
        if message.topic == SCHEDULE_TOPIC and found[2] == message.store_timestamp + DELAY_UNKNOWN_MS:
            # RocketMQ 4.9 recovers before it knows its delay levels, and writes this.
            found = expected
        if found != expected:
            self._report.add(self._where, f"entry {message.queue_offset} is {found}, the log says {expected}")

    def _entry(self) -> tuple[int, int, int]:
        assert self._queue is not None
        if self._next >= self._read_to:
            raw = self._queue.entries(self._next, READ_AHEAD)
            self._read = ENTRY.iter_unpack(raw)
            self._read_to = self._next + len(raw) // ENTRY.size
        self._next += 1
        return next(self._read)

    def finish(self, clean: bool, end_offset: int) -> int:
        """Entries behind the last record; how many records have no entry yet."""
        queue = self._queue
        if queue is None:
            return 0
        extra = 0
        while self._next < queue.count:
            physical_offset, size, _ = self._entry()
            if size == FILLER_SIZE or _is_within(physical_offset, self._lost):
                continue
            if clean or physical_offset < end_offset:
                extra += 1
        if extra:
            self._report.add(self._where, f"{extra} entries point to no record of the log")
        if self._missing and clean:
            self._report.add(self._where, f"{self._missing} messages of the log have no entry")
            return 0
        return self._missing


def _is_within(offset: int, ranges: list[tuple[int, int]]) -> bool:
    return any(start <= offset < stop for start, stop in ranges)


class _IndexCheck:
    """The index entries, which are in log order, against the keys of the records."""

    def __init__(
        self, index: KeyIndex, log_start: int, report: Report, ours: bool, lost: list[tuple[int, int]]
    ) -> None:
        self.index = index
        self._lost = lost
        self._ours = ours
        self._report = report
        self._log_start = log_start
        self._hashers: dict[str, TopicHasher] = {}
        self.entries = 0
        self._flow = self._all()
        self._ahead = next(self._flow, None)
        self._missing = 0
        self._hole = 0

    def _all(self) -> Iterator[tuple[int, int]]:
        for name in self.index.names:
            for key_hash, physical_offset, _, _ in self.index.file(name).all_entries():
                self.entries += 1
                if physical_offset >= self._log_start:
                    yield key_hash, physical_offset

    def expect(self, message: StoredMessage) -> None:
        hasher = self._hashers.get(message.topic)
        if hasher is None:
            hasher = self._hashers[message.topic] = TopicHasher(message.topic)
        for key in index_keys(message.properties):
            while self._ahead is not None and self._ahead[1] < message.physical_offset:
                self._stray(self._ahead[1])
                self._ahead = next(self._flow, None)
            if self._ahead == (hasher.key_hash(key), message.physical_offset):
                self._ahead = next(self._flow, None)
                self._hole += self._missing
                self._missing = 0
            else:
                self._missing += 1

    def finish(self, clean: bool, end_offset: int) -> int:
        """How many keys at the end of the log are not indexed yet."""
        while self._ahead is not None:
            if clean or self._ahead[1] < end_offset:
                self._stray(self._ahead[1])
            self._ahead = next(self._flow, None)
        if clean:
            self._hole += self._missing
            self._missing = 0
        if self._hole:
            what = f"{self._hole} keys of the log are not in the index; `tandemq store rebuild` adds them"
            if self._ours:
                self._report.add("index", what)
            else:
                self._report.notes.append(f"{what} (a RocketMQ broker loses some when it recovers from a crash)")
        return self._missing

    def _stray(self, physical_offset: int) -> None:
        if not _is_within(physical_offset, self._lost):
            self._report.add("index", f"an entry points to offset {physical_offset}, which has no such key")

    def check_chains(self) -> None:
        """Every slot leads to its newest entry, every entry to the one before it in the same slot."""
        for name in self.index.names:
            file = self.index.file(name)
            newest: dict[int, int] = {}
            for number, (key_hash, _, _, previous) in enumerate(file.all_entries(), 1):
                slot = key_hash % file.slots
                if previous != newest.get(slot, 0):
                    self._report.add(f"index/{name}", f"entry {number} leads to {previous}, not {newest.get(slot, 0)}")
                    break
                newest[slot] = number
            else:
                self._check_slots(name, file, newest)

    def _check_slots(self, name: str, file: IndexFile, newest: dict[int, int]) -> None:
        wrong = sum(1 for slot, number in newest.items() if file.slot(slot) != number)
        if wrong and self._report.clean:
            self._report.add(f"index/{name}", f"{wrong} slots do not lead to their newest entry")
