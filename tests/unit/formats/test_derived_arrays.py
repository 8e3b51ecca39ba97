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


@pytest.mark.parametrize("seed", range(12))
def test_arrays_follow_the_rules_for_one_record(seed: int) -> None:
    """Entries, queues and keys of any mix of records."""
    log = random_log(random.Random(seed), 200)
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
