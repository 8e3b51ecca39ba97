"""Decoders fed random and mutated bytes: an error or a value, never a crash, a hang or unbounded memory.

TANDEMQ_FUZZ=5000 runs that many examples of each instead of the usual few.
"""

import contextlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tandemq.errors import CorruptLog, CorruptRecord, TandemError
from tandemq.formats import envelope
from tandemq.formats.batch import MessageBatch, Shared, encode_batch, parse_batch, split_batch
from tandemq.formats.checkpoint import CheckpointFile
from tandemq.formats.compression import decompress
from tandemq.formats.record import MAGIC_V1, check_record, encode_record, parse_record, walk
from tandemq.model.message import decode_properties
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import MemoryDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.store.verify import verify

pytestmark = pytest.mark.exhaustive

HOST = bytes(8)
RECORD = encode_record(
    topic="topic", queue_id=1, queue_offset=2, physical_offset=0, born_timestamp=4, born_host=HOST,
    store_timestamp=5, store_host=HOST, body=b"body" * 9, properties=b"KEYS\x01a b\x02TAGS\x01t\x02",
)  # fmt: skip
LARGE_BATCH = encode_batch([(number, b"b" * (number % 3), b"A\x01b") for number in range(40)])
BATCH = encode_batch([(0, b"one", b"A\x01b\x02"), (1, b"two", b"")])
MANY = settings(
    max_examples=int(os.environ.get("TANDEMQ_FUZZ", 400)), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
FEW = settings(
    max_examples=int(os.environ.get("TANDEMQ_FUZZ", 60)), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
ROOT = Path("/store")
CONFIG = StoreConfig(
    commit_log_segment_size=4096, consume_queue_segment_size=200, index_slots=5, index_entries=30, message_size_max=2000
)


def mutated(valid: bytes) -> st.SearchStrategy[bytes]:
    """The valid bytes with a few places overwritten, cut, or something inserted."""

    def apply(changes: list[tuple[int, bytes]], stop: int) -> bytes:
        data = bytearray(valid)
        for position, piece in changes:
            at = position % len(data)
            data[at : at + len(piece)] = piece
        return bytes(data[: stop % (len(data) + 1)] if stop else data)

    change = st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=8))
    return st.builds(apply, st.lists(change, min_size=1, max_size=4), st.integers(0, 1 << 16))


@MANY
@given(st.binary(max_size=300) | mutated(RECORD), st.integers(0, 20))
def test_records(data: bytes, position: int) -> None:
    """A parsed record lies within the input; a refused one says why."""
    problem = check_record(data, position, len(data))
    try:
        message = parse_record(data, position, crc=True)
    except TandemError:
        return
    assert problem is None
    assert position + message.size <= len(data)
    assert len(message.body) <= len(data)


@MANY
@given(st.binary(max_size=300) | mutated(RECORD * 3))
def test_walking(data: bytes) -> None:
    """Steps forward, never beyond the end."""
    last = 0
    for position, size, _ in walk(data, 0, len(data)):
        assert position >= last
        last = position + size
        assert last <= len(data)


@MANY
@given(st.binary(max_size=200) | mutated(BATCH))
def test_batches(data: bytes) -> None:
    with contextlib.suppress(TandemError):
        assert sum(len(body) for _, body, _ in split_batch(data)) <= len(data)


SHARED = Shared(b"\x01T", MAGIC_V1, 0, 0, 1, HOST, 2, HOST, 0)


@MANY
@given(mutated(LARGE_BATCH))
def test_large_batches(data: bytes) -> None:
    """Many elements at once: what one by one gives, the error too."""
    try:
        expected = MessageBatch(split_batch(data)).records(SHARED, 0, 0)
    except CorruptRecord as error:
        with pytest.raises(CorruptRecord, match=re.escape(str(error))):
            parse_batch(data)
    else:
        offsets, parts = parse_batch(data).records(SHARED, 0, 0)
        assert (offsets, b"".join(parts)) == (expected[0], b"".join(expected[1]))


@MANY
@given(st.binary(max_size=200), st.sampled_from([1, 0x101, 0x201, 0x301, 0x401]))
def test_compressed_bodies(data: bytes, sys_flag: int) -> None:
    with contextlib.suppress(TandemError):
        assert len(decompress(data, sys_flag, size_max=5000)) <= 5000


@MANY
@given(st.binary(max_size=100))
def test_texts_of_the_log(data: bytes) -> None:
    decode_properties(data)
    with contextlib.suppress(TandemError):
        envelope.decode_op_body(data)
    with contextlib.suppress(TandemError):
        envelope.from_half(0, decode_properties(data))


@MANY
@given(st.binary(max_size=4096) | mutated(bytes(4096)))
def test_checkpoints(data: bytes) -> None:
    CheckpointFile(data).read()


def filled() -> MemoryDisk:
    disk = MemoryDisk()
    store = MessageStore.open(ROOT, CONFIG, clock=ManualClock(), disk=disk)
    for number in range(25):
        store.append("topic", number % 2, 0, 0, 1, HOST, 0, 0, bytes([number]) * 200, b"KEYS\x01k%d\x02" % number)
    store.dispatch()
    store.close()
    return disk


FILLED = filled()


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    copy.directories = set(disk.directories)
    for path, file in disk.files.items():
        copy.create_file(path, len(file.data))
        copy.files[path].data[:] = file.data
    return copy


damages = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.binary(min_size=1, max_size=30)))


@FEW
@given(damages, st.booleans())
def test_damaged_stores_open_or_are_refused(damage: list[tuple[int, int, bytes]], aborted: bool) -> None:
    """Any bytes of any file changed: opening, reading everything and verifying end with an answer."""
    disk = copy_of(FILLED)
    paths = sorted(disk.files)
    for which, where, piece in damage:
        data = disk.files[paths[which % len(paths)]].data
        at = where % max(1, len(data))
        data[at : at + len(piece)] = piece[: max(0, len(data) - at)]
    if aborted:
        disk.create_file(ROOT / "abort", 0)
    verify(copy_of(disk), ROOT, CONFIG)
    try:
        store = MessageStore.open(ROOT, CONFIG, clock=ManualClock(), disk=disk)
    except CorruptLog:
        return
    for topic, queue_id in list(store.reader.queues()):
        position, highest = store.reader.queue_range(topic, queue_id)
        while position < highest:
            with contextlib.suppress(TandemError):
                store.reader.get(topic, queue_id, position, 32, 1 << 20)
            position += 1
    for number in range(25):
        store.reader.query("topic", f"k{number}", 9, 0, 1 << 62)
    store.append("topic", 0, 0, 0, 1, HOST, 0, 0, b"more", b"")
    store.dispatch()
    store.close()
