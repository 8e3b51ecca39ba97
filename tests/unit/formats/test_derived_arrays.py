"""Records as arrays give what the rules for one record give."""

import random

import numpy as np
import pytest
from tests.made_log import V4, V6

from tandemq.formats.derived import index_keys, is_in_index, is_in_queue, queue_tags_code
from tandemq.formats.derived_arrays import Derived
from tandemq.formats.key_hash import TopicHasher
from tandemq.formats.record import encode_record, parse_record, tail_bounds
from tandemq.formats.record_fields import Fields
from tandemq.formats.record_starts import hop

DELAYS = (1000, 5000, 10_000)
TOPICS = ("orders", "payments", "größe", "t" * 200, "SCHEDULE_TOPIC_XXXX")
VALUES = (b"", b"k", b"key-1", b"key-12 key-13", b" k ", "Schlüssel 😀".encode(), b"3", b"a\x01b", b"\xff\xfe", b"\0x")
NAMES = (b"UNIQ_KEY", b"KEYS", b"TAGS", b"MY_KEYS", b"XUNIQ_KEY", b"KEY", b"DELAY", b"", "é".encode())


def random_log(rng: random.Random, count: int) -> bytes:
    log = bytearray()
    for number in range(count):
        parts = [rng.choice(NAMES) + rng.choice((b"\x01", b"")) + rng.choice(VALUES) for _ in range(rng.randrange(6))]
        log += encode_record(
            topic=rng.choice(TOPICS), queue_id=rng.randrange(3), queue_offset=number, physical_offset=len(log),
            sys_flag=rng.choice((0, 0, 0, 4, 8, 12)), born_timestamp=1, born_host=rng.choice((V4, V6)),
            store_timestamp=1_700_000_000_000 + number, store_host=rng.choice((V4, V6)), body=b"b" * rng.randrange(99),
            properties=b"\x02".join(parts) + rng.choice((b"", b"\x02")),
        )  # fmt: skip
    return bytes(log)


def derived(log: bytes) -> Derived:
    fields = Fields(log, hop(log, 0, len(log), len(log)).positions)
    assert fields.broken() == {}
    return Derived(fields, DELAYS)


ALIKE = {
    "keys": [b"UNIQ_KEY\x01%04d\x02KEYS\x01a%d b\x02TAGS\x01TagA\x02" % (number, number) for number in range(10)],
    "tags": [b"UNIQ_KEY\x01%04d\x02TAGS\x01Tag%d" % (number, number) for number in range(10)],
    "no text": [b""],
    "not ASCII": [b"KEYS\x01\xc3%c\x02" % byte for byte in range(0xA0, 0xB0)],
    "an odd name": [b"UNIQ_KEY\x01k1\x02TAGS\x01t\x02", b"UNIQ_KEY\x01k2\x02KEYS\x01t\x02"],
    "an odd separator": [b"TAGS\x01ab\x02KEYS\x01c", b"TAGS\x01a\x02bKEYS\x01c", b"TAGS\x01a\x01\x02KEYS\x01c"],
    "a separator in a value": [*[b"KEYS\x01a%db" % number for number in range(10)], b"KEYS\x01a\x02b"],
    "an odd end": [b"KEYS\x01ab\x02", b"KEYS\x01a\x02b", b"KEYS\x01\x02ab"],
    "the last that is not empty": [b"KEYS\x01a%d\x02KEYS\x01\x02" % number for number in range(10)],
}


def alike_log(rng: random.Random, count: int, texts: list[bytes]) -> bytes:
    """Records whose texts have the same size."""
    log = bytearray()
    for number in range(count):
        log += encode_record(
            topic="orders", queue_id=rng.choice((0, 1, 70_000)), queue_offset=number, physical_offset=len(log),
            sys_flag=0, born_timestamp=1, born_host=V4, store_timestamp=1_700_000_000_000, store_host=V4, body=b"b",
            properties=rng.choice(texts),
        )  # fmt: skip
    return bytes(log)


@pytest.mark.parametrize("kind", ALIKE)
def test_texts_of_one_size_follow_the_rules_for_one_record(kind: str) -> None:
    """Whether they differ in values only, or in what is a name and what a value."""
    compare_with_the_rules(alike_log(random.Random(kind), 60, ALIKE[kind]))


@pytest.mark.parametrize("seed", range(12))
def test_arrays_follow_the_rules_for_one_record(seed: int) -> None:
    """Entries, queues and keys of any mix of records."""
    compare_with_the_rules(random_log(random.Random(seed), 200))


def compare_with_the_rules(log: bytes) -> None:
    found = derived(log)
    entries, rows_of = found.entries(), {(topic, queue): rows for topic, queue, rows in found.by_queue()}
    keys = list(zip(*(column.tolist() for column in found.index_keys()), strict=True))
    expected_keys = []
    for row, start in enumerate(hop(log, 0, len(log), len(log)).positions.tolist()):
        message = parse_record(log, start)
        properties = log[slice(*tail_bounds(log, start)[2:])]
        tags = queue_tags_code(message.topic, properties, message.store_timestamp, DELAYS)
        assert entries[row].tolist() == (start, message.size, tags)
        rows = rows_of.get((message.topic.encode(), message.queue_id), np.empty(0))
        assert (row in rows) == is_in_queue(message.sys_flag)
        if is_in_index(message.sys_flag):
            hasher = TopicHasher(message.topic)
            expected_keys += [(hasher.key_hash(key), row) for key in index_keys(properties)]
    assert keys == expected_keys


def test_the_hash_with_no_absolute_value_is_zero() -> None:
    """Java's smallest integer: a key is searched for whose hash is just that."""
    tail = ""
    target = 1 << 31
    seed = TopicHasher("T").seed
    # 31 is odd, so a suitable last part exists for every beginning: digits of base 31 from the right.
    value = (target - seed * pow(31, 7, 1 << 32)) % (1 << 32)
    units = []
    for _ in range(7):
        units.append(48 + (value - 48) % 31)
        value = (value - units[-1]) // 31
    tail = "".join(map(chr, reversed(units)))
    log = encode_record(
        topic="T", queue_id=0, queue_offset=0, physical_offset=0, born_timestamp=1, born_host=V4, store_timestamp=1,
        store_host=V4, body=b"", properties=b"UNIQ_KEY\x01" + tail.encode() + b"\x02",
    )  # fmt: skip
    assert derived(log).index_keys().hashes.tolist() == [TopicHasher("T").key_hash(tail.encode())]


def test_nothing_gives_nothing() -> None:
    assert derived(b"").index_keys().rows.tolist() == []
    assert derived(b"").by_queue() == []
    assert derived(b"").entries().tolist() == []
