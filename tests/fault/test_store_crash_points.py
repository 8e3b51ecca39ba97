"""Every step of a truncation, a reset and a roll-over, with the power cut before it: enumerated, not sampled."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tandemq.formats.log_mark import LOG_MARK_TOPIC, TopicDeleted
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk, PowerCut
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.store.verify import verify

pytestmark = pytest.mark.exhaustive

ROOT = Path("/store")
CONFIG = StoreConfig(
    commit_log_segment_size=4096,
    consume_queue_segment_size=5 * 20,
    index_slots=7,
    index_entries=20,
    message_size_max=3000,
)
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
FOREVER = 1 << 62
SURVIVALS = ["nothing", "everything", *range(6)]
"""What of the unsynced survives: nothing, everything (kill -9), or a random part by seed."""


def opened(disk: CrashableDisk) -> MessageStore:
    return MessageStore.open(ROOT, CONFIG, clock=ManualClock(), disk=disk, store_host=HOST)


def put(store: MessageStore, number: int, size: int = 500) -> int:
    properties = f"KEYS\x01key-{number:05d}\x02".encode()
    body = Random(number).randbytes(size)
    return store.append("topic", number % 2, 0, 0, 1, HOST, 0, 0, body, properties).physical_offset


def survivor(disk: CrashableDisk, survival: object) -> CrashableDisk:
    if survival == "nothing":
        return disk.after_crash()
    if survival == "everything":
        return disk.after_crash(keep_all=True)
    return disk.after_crash(Random(str(survival)))


def crash_points(
    prepare: Callable[[CrashableDisk], MessageStore], act: Callable[[MessageStore], object], survival: object
) -> list[tuple[CrashableDisk, bool]]:
    """Disks left behind by a cut before each step of `act`, and at last by the finished act (True)."""
    found = []
    step = 0
    while True:
        disk = CrashableDisk()
        store = prepare(disk)
        disk.crash_at = len(disk.steps) + step
        try:
            act(store)
        except PowerCut:
            found.append((survivor(disk, survival), False))
            step += 1
        else:
            found.append((survivor(disk, survival), True))
            return found


def log_bytes(store: MessageStore) -> bytes:
    pieces, position = [], store.first_offset
    while position < store.appended:
        size = min(store.appended - position, 4096 - position % 4096)
        pieces.append(bytes(store.slice(position, size)))
        position += size
    return b"".join(pieces)


def check_views(store: MessageStore, numbers: list[int]) -> None:
    """Queues and index hold exactly the messages `numbers`."""
    for queue_id in range(2):
        expected = [n for n in numbers if n % 2 == queue_id]
        assert store.reader.queue_range("topic", queue_id) == (0, len(expected))
        for offset, number in enumerate(expected):
            result = store.reader.get("topic", queue_id, offset, 1, 1)
            assert f"key-{number:05d}".encode() in bytes(result.slices[0])
    for number in range(40):
        hits = store.reader.query("topic", f"key-{number:05d}", 5, 0, FOREVER)
        assert len(hits) == numbers.count(number), number


@pytest.mark.parametrize("survival", SURVIVALS)
@pytest.mark.parametrize("keep", [1, 5, 8, 13])
def test_truncation_is_all_or_nothing(survival: object, keep: int) -> None:
    """After a cut at any step the log is the old or the cut one; nothing old ever follows what is appended then."""

    def prepare(disk: CrashableDisk) -> MessageStore:
        store = opened(disk)
        for number in range(20):
            put(store, number)
        store.dispatch()
        store.flush_all()
        return store

    reference = prepare(CrashableDisk())
    whole = log_bytes(reference)
    offsets = [
        m.physical_offset for n in range(20) for m in reference.reader.query("topic", f"key-{n:05d}", 1, 0, FOREVER)
    ]
    cut_at = offsets[keep]
    for disk, finished in crash_points(prepare, lambda store: store.truncate(cut_at), survival):
        store = opened(disk)
        cut = store.appended == cut_at
        assert log_bytes(store) == (whole[:cut_at] if cut else whole)
        assert cut or not finished
        numbers = list(range(keep if cut else 20))
        check_views(store, numbers)
        # A record exactly as long as the one that was there: the next old one would line up behind it.
        put(store, 30)
        store.dispatch()
        store.abandon()
        for later in (disk.after_crash(keep_all=True), disk.after_crash(Random(1)), disk.after_crash()):
            again = opened(later)
            found = [*numbers, 30] if again.appended > (cut_at if cut else len(whole)) else numbers
            check_views(again, found)
            again.close()


@pytest.mark.parametrize("survival", SURVIVALS)
def test_reset_is_all_or_nothing(survival: object) -> None:
    """Either the old history or an empty log at the new offset."""

    def prepare(disk: CrashableDisk) -> MessageStore:
        store = opened(disk)
        for number in range(12):
            put(store, number)
        store.dispatch()
        store.flush_all()
        return store

    for disk, finished in crash_points(prepare, lambda store: store.reset(40960), survival):
        store = opened(disk)
        if store.first_offset == 0:
            assert not finished
            check_views(store, list(range(12)))
        else:
            assert (store.first_offset, store.appended, list(store.reader.queues())) == (40960, 40960, [])
            assert put(store, 3) == 40960
        store.close()


@pytest.mark.parametrize("survival", SURVIVALS)
def test_rolling_over_loses_nothing_that_was_flushed(survival: object) -> None:
    """Appends that cross into a new segment (and new queue and index files), cut at any step."""
    promised: list[int] = []

    def prepare(disk: CrashableDisk) -> MessageStore:
        promised.clear()
        store = opened(disk)
        for number in range(5):
            put(store, number)
        store.dispatch()
        store.flush_all()
        promised.extend(range(5))
        return store

    def act(store: MessageStore) -> None:
        for number in range(5, 22):
            put(store, number)
            store.dispatch()
            if number % 3 == 0:
                store.flush_once()
                promised[:] = range(number + 1)
                store.prepare()
            if number % 7 == 0:
                store.flush_all()
        store.close()

    kept = []

    def crashing(store: MessageStore) -> None:
        try:
            act(store)
        finally:
            kept.append(len(promised))

    for number, (disk, _finished) in enumerate(crash_points(prepare, crashing, survival)):
        store = opened(disk)
        messages = sum(store.reader.queue_range("topic", q)[1] for q in range(2))
        assert messages >= kept[number]
        check_views(store, list(range(messages)))
        put(store, 30)
        store.dispatch()
        check_views(store, [*range(messages), 30])
        store.close()


@pytest.mark.parametrize("survival", SURVIVALS)
def test_deleting_a_topic_is_a_position_of_the_log(survival: object) -> None:
    """Whenever the power goes, the queues are those that the log gives: the old ones, none, or those made anew."""

    def prepare(disk: CrashableDisk) -> MessageStore:
        store = opened(disk)
        for number in range(6):
            put(store, number)
        store.dispatch()
        store.flush_all()
        return store

    def act(store: MessageStore) -> None:
        store.append_mark(TopicDeleted("topic"))
        for number in range(6, 11):
            put(store, number)
            store.dispatch()
        store.flush_all()
        put(store, 11)
        store.dispatch()
        store.close()

    for disk, finished in crash_points(prepare, act, survival):
        store = opened(disk)
        deleted = next((m.physical_offset for m in store.reader.walk() if m.topic == LOG_MARK_TOPIC), None)
        there = [
            m for m in store.reader.walk() if m.topic == "topic" and (deleted is None or m.physical_offset > deleted)
        ]
        for queue_id in range(2):
            expected = [m.queue_offset for m in there if m.queue_id == queue_id]
            assert store.reader.queue_range("topic", queue_id) == (0, len(expected))
            assert expected == list(range(len(expected)))
        assert not finished or len(there) == 6
        store.close()
        assert verify(disk, ROOT, CONFIG).ok


@pytest.mark.parametrize("survival", SURVIVALS)
def test_retention_keeps_the_numbers_of_queues(survival: object) -> None:
    """Whenever the power goes, and although the queue files are lost too, numbers go on where they were."""
    config = dataclasses.replace(CONFIG, delete_when=";".join(f"{hour:02d}" for hour in range(24)))

    def prepare(disk: CrashableDisk) -> MessageStore:
        store = MessageStore.open(ROOT, config, clock=ManualClock(), disk=disk, store_host=HOST)
        for number in range(20):
            store.append("early", number % 2, 0, 0, 1, HOST, 0, 0, b"", b"")
        for number in range(20):
            put(store, number)
        store.dispatch()
        store.flush_all()
        return store

    def act(store: MessageStore) -> None:
        now = ManualClock().wall_ms() + 100 * 3_600_000
        assert store.retain(now, append_mark=store.append_mark) > 1
        put(store, 20)
        store.dispatch()
        store.flush_all()

    for disk, _ in crash_points(prepare, act, survival):
        for lost in (False, True):
            if lost:
                disk.remove_tree(ROOT / "consumequeue")
            store = opened(disk)
            assert [store.reader.queue_range("early", queue_id)[1] for queue_id in range(2)] == [10, 10]
            done = store.append("early", 0, 0, 0, 1, HOST, 0, 0, b"", b"")
            assert done.queue_offset == 10
            store.truncate(done.physical_offset)
            store.close()
            assert verify(disk, ROOT, CONFIG).ok
