"""The records that a batch becomes, one by one and many at once."""

from random import Random

import pytest
from tests.made_log import V4, V6

from tandemq.errors import CorruptRecord
from tandemq.formats.batch import LARGE_COUNT_MIN, Shared, encode_batch, parse_batch
from tandemq.formats.batch_arrays import ArrayBatch
from tandemq.formats.record import MAGIC_V1, MAGIC_V2, encode_record, host_flags


@pytest.mark.parametrize("count", [1, LARGE_COUNT_MIN - 1, LARGE_COUNT_MIN, 300])
@pytest.mark.parametrize(("born", "store", "topic"), [(V4, V4, "T"), (V6, V4, "T"), (V4, V6, "t" * 200), (V6, V6, "ü")])
def test_a_batch_becomes_the_records_of_its_messages(count: int, born: bytes, store: bytes, topic: str) -> None:
    random = Random(count)
    sizes = (0, 1, 30, 700)
    elements = [
        (random.randrange(-9, 9), random.randbytes(random.choice(sizes)), random.randbytes(random.choice(sizes)))
        for _ in range(count)
    ]
    body = encode_batch(elements)
    batch = parse_batch(body)
    assert isinstance(batch, ArrayBatch) == (count >= LARGE_COUNT_MIN)
    assert len(batch) == count
    assert batch.properties_size_max == max(len(properties) for _, _, properties in elements)
    name = topic.encode()
    short = len(name) < 128
    sys_flag = host_flags(born, store) | 8
    topic_part, magic = len(name).to_bytes(1 if short else 2, "big") + name, MAGIC_V1 if short else MAGIC_V2
    shared = Shared(topic_part, magic, 3, sys_flag, 111, born, 222, store, 4)
    for skip in (0, 1, count // 2):
        offsets, parts = batch.without(skip).records(shared, 5000, 70)
        expected, position = b"", 5000
        assert len(offsets) == count - skip
        for number, (flag, message, properties) in enumerate(elements[skip:]):
            assert offsets[number] == position
            expected += encode_record(
                topic=topic, queue_id=3, flag=flag, queue_offset=70 + number, physical_offset=position,
                sys_flag=sys_flag, born_timestamp=111, born_host=born, store_timestamp=222, store_host=store,
                reconsume_times=4, prepared_transaction_offset=0, body=message, properties=properties,
            )  # fmt: skip
            position = 5000 + len(expected)
        assert b"".join(parts) == expected
        total = shared.fixed_size * (count - skip) + batch.without(skip).content_size
        assert total == len(expected)


@pytest.mark.parametrize("what", ["size", "body length", "properties length", "end"])
def test_a_large_batch_that_does_not_add_up_is_refused_with_the_element(what: str) -> None:
    body = bytearray(encode_batch([(0, b"body", b"A\x01b")] * 100))
    size = len(body) // 100
    at = {"size": 50 * size + 3, "body length": 50 * size + 19, "properties length": 50 * size + 25}.get(what)
    if at is None:
        del body[-1]
    else:
        body[at] += 1
    with pytest.raises(CorruptRecord, match=r"batch element (50|51|99)"):
        parse_batch(bytes(body))
    with pytest.raises(CorruptRecord, match="batch element 7"):
        parse_batch(encode_batch([(0, b"x", b"")] * 7) + b"\xff" * 22 * 90)
