"""The file that says what queues look like where the log begins."""

import pytest

from tandemq.formats.queue_starts import QueueStarts, decode_starts, encode_starts

STARTS = QueueStarts(4096, {("t", 0): 100}, {("t", 1): 300_000}, {("größe", 0): 7})


def test_what_is_written_is_read() -> None:
    assert decode_starts(encode_starts(STARTS)) == STARTS
    assert decode_starts(encode_starts(QueueStarts())) == QueueStarts()


@pytest.mark.parametrize("at", range(0, len(encode_starts(STARTS)), 7))
def test_a_damaged_file_says_nothing(at: int) -> None:
    data = bytearray(encode_starts(STARTS))
    data[at] ^= 1
    assert decode_starts(bytes(data)) != STARTS or data == encode_starts(STARTS)
    assert decode_starts(bytes(data)) is None
    assert decode_starts(bytes(data[:at])) is None
