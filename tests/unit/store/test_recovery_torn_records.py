"""After a crash of the machine: records of which a sector never reached the disk are not whole."""

from collections import deque

import pytest

from tandemq.formats.record import encode_record
from tandemq.store.recovery import scan_segment

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
SECTOR = 512


def segment(filler: int, topic: str) -> tuple[bytearray, int]:
    """Two records, and where the second begins: behind a body of `filler` bytes."""
    data = bytearray()
    starts = []
    for body in (bytes([7]) * filler, b"second"):
        starts.append(len(data))
        data += encode_record(
            topic=topic, queue_id=0, queue_offset=1, physical_offset=len(data), born_timestamp=1, born_host=HOST,
            store_timestamp=1, store_host=HOST, body=body, properties=b"A\x01b\x02",
        )  # fmt: skip
    return data + bytes(4096 - len(data)), starts[1]


def end_of(data: bytearray) -> int:
    return scan_segment(memoryview(data), 0, 0, True, deque(maxlen=10))


@pytest.mark.parametrize("topic", ["t", "a-topic"])
def test_a_topic_whose_first_letter_was_lost_ends_the_log(topic: str) -> None:
    data, second = segment(300, topic)
    whole = end_of(data)
    assert whole > second
    data[data.index(topic.encode(), second)] = 0
    assert end_of(data) == second


@pytest.mark.parametrize("lost", [slice(56, 64), slice(68, 72)], ids=["store time", "store port"])
def test_a_head_torn_between_two_sectors_ends_the_log(lost: slice) -> None:
    overhead = segment(0, "t")[1]
    data, second = segment(SECTOR - lost.stop - overhead, "t")
    assert (second + lost.stop) % SECTOR == 0
    data[second + lost.start : second + lost.stop] = bytes(lost.stop - lost.start)
    assert end_of(data) == second
