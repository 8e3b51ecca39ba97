"""Reads a whole store and says what is wrong with it, changing nothing.

One pass over the log. Every record: sizes, fields, checksum, its own offset. Beside it, in step with the log, the
consume queues (each record has exactly its entry, from where its topic was deleted last) and the index (each key its
entry, in order, every chain complete).
A store that was not closed cleanly may have a torn tail and views that lag: recovery's business, reported as notes.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tandemq.clock import SystemClock
from tandemq.errors import CorruptRecord
from tandemq.formats import layout
from tandemq.formats.checkpoint import SIZE, CheckpointFile, ViewsPoint
from tandemq.formats.derived import TAGS_NAME, index_keys, is_in_index, is_in_queue, property_value, queue_tags_code
from tandemq.formats.envelope import DELAY_UNKNOWN_MS, parse_delay_levels
from tandemq.formats.index_file import IndexFile
from tandemq.formats.key_hash import TopicHasher
from tandemq.formats.log_mark import LOG_MARK_TOPIC, QueueKey, TopicDeleted, decode_mark
from tandemq.formats.queue_entry import ENTRY, FILLER_SIZE
from tandemq.formats.record import parse_record, tail_bounds
from tandemq.model.message import StoredMessage
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.store.config import StoreConfig
from tandemq.store.consume_queue import ConsumeQueue
from tandemq.store.disk import Disk
from tandemq.store.key_index import KeyIndex
from tandemq.store.log_walk import whole_records
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
    log_damage: str = ""
    """The first problem of the log itself, which nothing can derive anew."""
    notes: list[str] = field(default_factory=list)
    checkpoint: str = ""
    """What is wrong with the checkpoint: a broker that starts builds queues and index anew. Nothing is lost by it."""

    @property
    def ok(self) -> bool:
        return self.problem_count == 0

    def add(self, where: str, what: str) -> None:
        self.problem_count += 1
        if not self.log_damage and where.split("/")[0] not in (layout.CONSUME_QUEUE, layout.INDEX):
            self.log_damage = f"{where}: {what}"
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(where, what))


def verify(disk: Disk, root: Path, config: StoreConfig, progress: Progress | None = None) -> Report:
    """Returns a report; problems are in it, nothing is raised for them."""
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
        self._views = self._our_views()
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
        for message, properties in self._records():
            report.records += 1
            self._check_views(message, properties)
        self._finish()
        self._chain.close()
        return report

    def _load_views(self) -> None:
        table = QueueTable(self._disk, self._root, self._config.consume_queue_file_size, writable=False)
        for queue in table.load():
            self._report.add(f"consumequeue/{queue.topic}/{queue.queue_id}", "its files are damaged or one is missing")
        for key, queue in table.table.items():
            self._queues[key] = _QueueCheck(key, queue, self._chain.first_offset, self._lost)
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
            self._index = _IndexCheck(
                index, self._chain.first_offset, self._report, self._views is not None, self._lost
            )
        elif self._views is not None and self._views.index_name:
            self._report.add("index", f"its files are missing: the checkpoint names {self._views.index_name}")

    def _our_views(self) -> ViewsPoint | None:
        """Returns what we said of the views last; None if a RocketMQ broker wrote the checkpoint since."""
        path = self._root / layout.CHECKPOINT
        if self._disk.file_size(path) is None:
            return None
        point = CheckpointFile(self._disk.read_at(path, 0, SIZE)).read()
        return point.views if point.certain else None

    def _records(self) -> Iterator[tuple[StoredMessage, bytes]]:
        """Yields whole and right records in order, with the text of their properties; reports what stops the walk."""
        chain, report = self._chain, self._report
        for base in chain.bases:
            view = chain.segment(base).view
            for at, damage in whole_records(view, base):
                report.end_offset = base + at
                if damage is not None:
                    if damage.after is not None:
                        self._skip(base, at, damage.after, damage.problem)
                    elif self._ends_here(base, at, view, damage.problem):
                        return
                    continue
                try:
                    message = parse_record(view, at)
                except CorruptRecord as error:
                    report.add(f"commitlog offset {base + at}", str(error))
                else:
                    properties_start, properties_stop = tail_bounds(view, at)[2:]
                    yield message, view[properties_start:properties_stop].tobytes()
            report.end_offset = base + len(view)
            if self._progress is not None:
                self._progress(base + len(view) - chain.first_offset, chain.end - chain.first_offset)

    def _skip(self, base: int, at: int, after: int, problem: str) -> None:
        """Reports a damage within a file; the pass goes on with the next whole record."""
        where = f"commitlog/{layout.segment_name(base)} offset {base + at}"
        self._report.add(where, f"{problem}; {after - at} bytes are skipped, the next record is at {base + after}")
        self._lost.append((base + at, base + after))

    def _ends_here(self, base: int, at: int, view: memoryview, problem: str) -> bool:
        """Returns whether the log ends or is damaged here; False if later files hold data to go on with."""
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

    def _check_views(self, message: StoredMessage, properties: bytes) -> None:
        if is_in_queue(message.sys_flag):
            key = (message.topic, message.queue_id)
            check = self._queues.get(key)
            if check is None:
                check = self._queues[key] = _QueueCheck(key, None, self._chain.first_offset, self._lost)
            check.expect(message, queue_tags_code(message.topic, properties, message.store_timestamp, self._delays))
        if message.topic == LOG_MARK_TOPIC and isinstance(mark := decode_mark(message.body), TopicDeleted):
            for (topic, _), check in self._queues.items():
                if topic == mark.topic:
                    check.start_over()
        if self._index is not None and is_in_index(message.sys_flag):
            self._index.expect(message, properties)

    def _finish(self) -> None:
        report = self._report
        lagging = sum(check.finish(report) for check in self._queues.values())
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
        self._check_checkpoint()
        if not report.clean:
            report.notes.append("the store was not closed cleanly (abort marker): a broker will recover it")

    def _check_checkpoint(self) -> None:
        """Checks the checkpoint: a missing or empty one only costs time; one that knows of more log tells of a loss."""
        report, views = self._report, self._views
        if views is not None and views.offset > report.end_offset:
            what = f"the log ends here; the checkpoint says it was durable up to {views.offset}: files are missing"
            report.add(f"commitlog offset {report.end_offset}", what)
        path = self._root / layout.CHECKPOINT
        if self._disk.file_size(path) is None:
            report.checkpoint = "it is missing" if report.records else ""
        else:
            point = CheckpointFile(self._disk.read_at(path, 0, SIZE)).read()
            if report.records and point.views is None and not point.log_timestamp:
                report.checkpoint = "it is empty or damaged"
        if report.checkpoint:
            report.notes.append(
                f"checkpoint: {report.checkpoint}: a broker that starts builds queues and index anew; "
                "`tandemq store verify --repair` does it now"
            )


class _QueueCheck:
    """One queue against the records of the log, in step. Problems are told at the end: a deletion makes them void."""

    def __init__(self, key: QueueKey, queue: ConsumeQueue | None, log_start: int, lost: list[tuple[int, int]]) -> None:
        self._where = f"consumequeue/{key[0]}/{key[1]}"
        self._queue = queue
        self._log_start = log_start
        self._lost = lost
        self.start_over()

    def start_over(self) -> None:
        """Forgets what was seen: the messages so far belong to a topic that was deleted, and are in no queue."""
        self._problems: list[str] = []
        self._first = self._next = self._queue.min_offset(self._log_start) if self._queue is not None else 0
        self._seen = self._missing = self._before = 0
        self._read: Iterator[tuple[int, int, int]] = iter(())
        self._read_to = self._next

    def expect(self, message: StoredMessage, tags_code: int) -> None:
        """Compares the entry of a record with it."""
        number = message.queue_offset
        if number == 0 and self._seen:
            self.start_over()  # a broker that writes no marks deleted the topic and made it again
        self._seen += 1
        if self._queue is None or number >= self._queue.count:
            self._missing += 1
        elif number < self._first:
            self._before += 1
        elif number >= self._next:
            self._compare(message, tags_code)

    def _compare(self, message: StoredMessage, tags_code: int) -> None:
        while self._next < message.queue_offset:
            physical_offset, size, _ = self._entry()
            if size != FILLER_SIZE and not _is_within(physical_offset, self._lost):
                self._problems.append(f"entry {self._next - 1} points to no record of the log")
        found = self._entry()
        expected = (message.physical_offset, message.size, tags_code)
        if message.topic == SCHEDULE_TOPIC and found[2] == message.store_timestamp + DELAY_UNKNOWN_MS:
            # RocketMQ 4.9 recovers before it knows its delay levels, and writes this.
            found = expected
        elif message.topic == SCHEDULE_TOPIC and _is_delay(found[2] - message.store_timestamp):
            # How long a level waits is the broker's setting, and may have changed since.
            found = (*found[:2], tags_code)
        if found != expected:
            self._problems.append(f"entry {message.queue_offset} is {found}, the log says {expected}")

    def _entry(self) -> tuple[int, int, int]:
        assert self._queue is not None
        if self._next >= self._read_to:
            raw = self._queue.entries(self._next, READ_AHEAD)
            self._read = ENTRY.iter_unpack(raw)
            self._read_to = self._next + len(raw) // ENTRY.size
        self._next += 1
        return next(self._read)

    def finish(self, report: Report) -> int:
        """Reports what is wrong. Returns how many records at the end have no entry yet."""
        if self._queue is None:
            if self._missing and report.clean:
                report.add(self._where, f"missing: the log has {self._missing} messages of it")
            return 0 if report.clean else self._missing
        if extra := self._extra(self._queue, report):
            self._problems.append(f"{extra} entries point to no record of the log")
        if self._before:
            self._problems.append(f"{self._before} messages before its first entry {self._first} have no entry")
        if self._missing and report.clean:
            self._problems.append(f"{self._missing} messages of the log have no entry")
        for problem in self._problems:
            report.add(self._where, problem)
        return 0 if report.clean else self._missing

    def _extra(self, queue: ConsumeQueue, report: Report) -> int:
        """Returns how many entries follow the last record."""
        extra = 0
        while self._next < queue.count:
            physical_offset, size, _ = self._entry()
            if size != FILLER_SIZE and not _is_within(physical_offset, self._lost):
                extra += report.clean or physical_offset < report.end_offset
        return extra


def _is_delay(delay_ms: int) -> bool:
    """Returns whether messageDelayLevel can say so: in whole seconds."""
    return delay_ms > 0 and delay_ms % 1000 == 0


def _is_within(offset: int, ranges: list[tuple[int, int]]) -> bool:
    return any(start <= offset < stop for start, stop in ranges)


def _tag_keys(properties: bytes) -> Iterator[bytes]:
    """Yields the keys under which RocketMQ 5.5 also indexes a message, by its tags."""
    if tags := property_value(properties, TAGS_NAME):
        yield b"T#" + tags


_USED_TWICE = (
    "index/{name} was filled twice: RocketMQ names index files by the millisecond, so of two files made in the same "
    "one the second overwrote the first, whose keys are not found; `tandemq store rebuild` adds them"
)
"""What the slots still held leads from the first entry of a slot to an entry of another one. A search compares hashes
and goes downwards, so it finds what it should."""


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

    def expect(self, message: StoredMessage, properties: bytes) -> None:
        hasher = self._hashers.get(message.topic)
        if hasher is None:
            hasher = self._hashers[message.topic] = TopicHasher(message.topic)
        wanted = [hasher.key_hash(key) for key in index_keys(properties)]
        allowed = {*wanted, *map(hasher.key_hash, _tag_keys(properties))}
        found = self._entries_of(message.physical_offset, allowed)
        for key_hash in wanted:
            if found[key_hash]:
                found[key_hash] -= 1
                self._hole += self._missing
                self._missing = 0
            else:
                self._missing += 1

    def _entries_of(self, physical_offset: int, allowed: Container[int]) -> Counter[int]:
        """Counts the entries that point to a record; reports those before it, and those with a key it does not have."""
        found: Counter[int] = Counter()
        while self._ahead is not None and self._ahead[1] <= physical_offset:
            key_hash, offset = self._ahead
            if offset == physical_offset and key_hash in allowed:
                found[key_hash] += 1  # more than once where a file ended between two keys of a message
            else:
                self._stray(offset)
            self._ahead = next(self._flow, None)
        return found

    def finish(self, clean: bool, end_offset: int) -> int:
        """Returns how many keys at the end of the log are not indexed yet."""
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
        """Checks that every slot leads to its newest entry, and every entry to the one before it in the same slot."""
        for name in self.index.names:
            file = self.index.file(name)
            newest: dict[int, int] = {}
            used_twice = False
            for number, (key_hash, _, _, previous) in enumerate(file.all_entries(), 1):
                slot = key_hash % file.slots
                wanted = newest.get(slot, 0)
                if wanted == 0 < previous < number and not self._ours:
                    used_twice = True
                elif previous != wanted:
                    self._report.add(f"index/{name}", f"entry {number} leads to {previous}, not {wanted}")
                    break
                newest[slot] = number
            else:
                self._check_slots(name, file, newest)
            if used_twice:
                self._report.notes.append(_USED_TWICE.format(name=name))

    def _check_slots(self, name: str, file: IndexFile, newest: dict[int, int]) -> None:
        wrong = sum(1 for slot, number in newest.items() if file.slot(slot) != number)
        if wrong and self._report.clean:
            self._report.add(f"index/{name}", f"{wrong} slots do not lead to their newest entry")
