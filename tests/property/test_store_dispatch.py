"""Dispatch's short cuts against the plain rules: what queues and index must hold follows from the decoded message."""

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from tandemq.formats import index_file, key_hash
from tandemq.formats.envelope import delay_level, delivery_time
from tandemq.formats.index_file import HEADER, IndexFile, file_size
from tandemq.formats.key_hash import SIZE_MAX, TopicHasher, absolute
from tandemq.model.message import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    StoredMessage,
    java_hash,
    tags_code,
)
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk
from tandemq.store import dispatch, record_runs
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore

pytestmark = pytest.mark.exhaustive

ROOT = Path("/store")
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
HOST_V6 = bytes(range(16)) + bytes((0, 0, 0, 9))
TOPICS = ("plain", "UNIQ_KEY\x01", "KEYS\x01", "größe", "%RETRY%" + "g" * 130, "SCHEDULE_TOPIC_XXXX")
NAMES = ("UNIQ_KEY", "UNIQ_KEY", "KEYS", "TAGS", "TAGS", "WAIT", "MY_KEYS", "XUNIQ_KEY", "DELAY", "é")
DELAYS = tuple(1000 * n for n in (1, 5, 10, 30, 60))


def texts(random: Random, strange: float) -> bytes:
    """Properties as clients write them, and as no client does."""
    if random.random() > strange:
        form = random.choice((b"0A00000104D218B4AAC2%08X%04X", b"TQ!0123456789abcdef0123%08x%08x"))
        key = form % (random.randrange(4), random.randrange(50))
        parts = [b"UNIQ_KEY\x01" + key, b"WAIT\x01true", b"TAGS\x01" + random.choice((b"a", b"b"))]
        if random.random() < 0.5:
            keys = random.choice((b"order-%04d", b"order-%04d", b"o-%d", b"order-%04d more")) % random.randrange(10)
            parts.insert(random.choice((0, 0, 0, 1, 2, 3)), b"KEYS\x01" + keys)
    else:
        values = (b"", b"k", b"key-1", b"key-12 key-13", b" k ", "Schlüssel".encode(), b"3", b"UNIQ_KEY")
        names = random.choices(NAMES, k=random.randrange(5))
        parts = [name.encode() + b"\x01" + random.choice(values) for name in names]
    return b"\x02".join(parts) + random.choice((b"", b"\x02"))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ways", ["one by one", "many at once"])
def test_views_are_what_the_decoded_messages_say(seed: int, ways: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues and index after dispatch in runs of any length, plain records and all other kinds mixed."""
    random = Random(seed)
    bursts, strange = (1, 2, 5, 30), 0.6
    if ways == "many at once":
        monkeypatch.setattr(dispatch, "MANY_SIZE_MIN", 1)
        monkeypatch.setattr(dispatch, "MANY_SIZE_MAX", 1 << 13)
        monkeypatch.setattr(record_runs, "ROWS_MIN", 1)
        bursts, strange = (2, 30, 60), random.choice((0.0, 0.1, 0.6))
    config = StoreConfig(commit_log_segment_size=1 << 14, index_slots=random.choice((7, 5000)), index_entries=300)
    clock = ManualClock()
    store = MessageStore.open(ROOT, config, clock=clock, disk=CrashableDisk(), store_host=HOST)
    for _ in range(40):
        burst = random.choice(bursts)
        for _ in range(burst):
            kind, born, topic = 0, HOST, random.choice(TOPICS[: 2 + 4 * (random.random() < strange)])
            if random.random() < strange:
                kind = random.choice((0, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK))
                born = random.choice((HOST, HOST_V6))
            body = random.randbytes(random.choice((0, 1, 100)))
            store.append(topic, random.randrange(2), 0, kind, 1, born, 0, 0, body, texts(random, strange))
            if (random.random() < 0.3 and ways == "one by one") or random.random() < 0.01:
                clock.advance(random.choice((0.001, 3)))
        before = store.dispatched
        store.dispatch()
        if random.random() < 0.2:  # once more, as after a crash: what is there is recognised
            dispatcher = store._dispatcher
            dispatcher.index_from, dispatcher.position = store.dispatched, before
            store.dispatch()
    expected_queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    expected_keys = []
    for message in store.reader.walk():
        if not message.sys_flag & TRANSACTION_PREPARED:
            entry = (message.physical_offset, message.size, tags_of(message, store._views.delays_ms))
            expected_queues.setdefault((message.topic, message.queue_id), []).append(entry)
        if message.sys_flag & TRANSACTION_ROLLBACK != TRANSACTION_ROLLBACK:
            for key in keys_of(message):
                value = absolute(java_hash(f"{message.topic}#{key}"))
                expected_keys.append((value, message.physical_offset, message.store_timestamp))
    queues = {key: [queue.entry(i) for i in range(queue.count)] for key, queue in store._queues.items() if queue.count}
    assert queues == expected_queues
    assert store._views.index is not None
    compare_index(map(store._views.index.file, store._views.index.names), expected_keys)
    store.abandon()


def tags_of(message: StoredMessage, delays_ms: tuple[int, ...]) -> int:
    """The rule for the tags code, from the decoded message."""
    level = min(delay_level(message.properties), len(delays_ms))
    if message.topic == SCHEDULE_TOPIC and level:
        return delivery_time(message.store_timestamp, level, delays_ms)
    return tags_code(message.properties.get("TAGS", ""))


def keys_of(message: StoredMessage) -> list[str]:
    """The rule for the keys, likewise."""
    return [key for key in (message.properties.get("UNIQ_KEY"), *message.properties.get("KEYS", "").split(" ")) if key]


def compare_index(files: Iterable[IndexFile], expected: list[tuple[int, int, int]]) -> None:
    """Entries, chains, slots and header as putting the keys one by one makes them."""
    done = ended_at = 0
    for file in files:
        here = expected[done : done + file.entries_max - 1]
        done += len(here)
        newest: dict[int, int] = {}
        for number, (value, physical_offset, stored_at) in enumerate(here, 1):
            place = value % file.slots
            seconds = (stored_at - (ended_at if number == 1 and ended_at else here[0][2])) // 1000
            assert file.entry(number) == (value, physical_offset, seconds, newest.get(place, 0))
            newest[place] = number
        assert {place: file.slot(place) for place in range(file.slots) if file.slot(place)} == newest
        assert file.count == len(here) + 1
        assert file.slot_count == len(newest)
        ended_at = here[-1][2]
        header = (here[0][2], here[-1][2], here[0][1], here[-1][1], len(newest), len(here) + 1)
        assert HEADER.unpack_from(file.view) == header
    assert done == len(expected)


def test_a_key_is_hashed_as_java_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its length and alphabet, with tables, shared by all topics, that are cold, warm and overflowing."""
    monkeypatch.setattr(key_hash, "HEADS_MAX", 500)
    monkeypatch.setattr(key_hash, "ENDINGS_MAX", 2000)
    key_hash.HEADS.clear()
    key_hash.ENDINGS.clear()
    cleared = 0
    random = Random(1)
    hashers = {topic: TopicHasher(topic) for topic in ("größe", "T")}
    alphabets = ("0123456789ABCDEF", "0123456789abcdef", "ab ", "äöü€x", "𝄞a")
    for _ in range(20_000):
        known = len(key_hash.HEADS), len(key_hash.ENDINGS)
        alphabet = random.choice(alphabets)
        size = random.choice((0, 1, 3, 4, 5, 7, 8, 9, 12, 32, 36, SIZE_MAX, SIZE_MAX + 1))
        key = "".join(random.choices(alphabet, k=size))
        for topic, hasher in hashers.items():
            assert hasher.key_hash(key.encode()) == absolute(java_hash(f"{topic}#{key}"))
        assert len(key_hash.HEADS) <= 500
        assert len(key_hash.ENDINGS) <= 2000
        cleared |= (len(key_hash.HEADS) < known[0]) + 2 * (len(key_hash.ENDINGS) < known[1])
    assert cleared == 3


def put_all(file: IndexFile, hashes: list[int], offsets: list[int], times: list[int]) -> None:
    done = 0
    while done < len(hashes):
        done = file.put_some(hashes, offsets, times, done)


@pytest.mark.parametrize("step", range(7))
def test_a_run_cut_short_by_a_kill_is_taken_back(step: int) -> None:
    """The kill came after 0..6 of a run's six slots were written, the header not yet: `cut` leaves what was before."""
    slots, entries = 50, 40
    disk = CrashableDisk()
    disk.make_directory(ROOT)
    segment = disk.create_segment(ROOT / "index", file_size(slots, entries))
    file = IndexFile(segment.view, slots, entries, segment.reserve)
    put_all(file, [3, 4, 5, 53], [100, 200, 300, 400], [1000] * 4)
    before = bytes(segment.view)
    hashes = [3, 9, 10, 4, 11, 5]
    put_all(file, hashes, [500, 600, 700, 800, 900, 1000], [2000] * 6)
    segment.view[: HEADER.size] = before[: HEADER.size]
    for value in hashes[step:]:
        at = HEADER.size + 4 * value
        segment.view[at : at + 4] = before[at : at + 4]
    again = IndexFile(segment.view, slots, entries, segment.reserve)
    again.cut(500)
    assert bytes(segment.view)[HEADER.size :] == before[HEADER.size :]
    assert (again.count, again.slot_count, again.end_physical) == (5, 3, 400)


def test_a_run_is_longer_than_any_format() -> None:
    """More keys than one run takes are put in several."""
    slots, entries = 5000, 4 * index_file.RUN_MAX
    disk = CrashableDisk()
    disk.make_directory(ROOT)
    segment = disk.create_segment(ROOT / "index", file_size(slots, entries))
    file = IndexFile(segment.view, slots, entries, segment.reserve)
    numbers = list(range(1, entries))
    put_all(file, numbers, numbers, numbers)
    compare_index([file], [(n, n, n) for n in numbers])
