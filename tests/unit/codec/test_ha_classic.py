"""The classic HA protocol: frames decode the same however they are split."""

from collections.abc import Iterable

import pytest

from tandemq.codec import ha_classic as ha
from tandemq.codec.ha_classic import Chunk, Head, ReportReader, TransferReader


def pieces(data: bytes, size: int) -> Iterable[bytes]:
    return (data[i : i + size] for i in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_classic_stream_decodes_the_same_however_it_is_split(size: int) -> None:
    stream = ha.encode_transfer_header(100, 5) + b"hello" + ha.encode_transfer_header(105, 0)
    reader, heads, data = TransferReader(), [], b""
    for part in pieces(stream, size):
        for event in reader.feed(part):
            if isinstance(event, Chunk):
                data += bytes(event.data)
                assert event.last == (len(data) == 5)
            else:
                heads.append(event)
    assert heads == [Head(100, 5), Head(105, 0)]
    assert data == b"hello"
    reports = ReportReader()
    stream = ha.encode_report(0) + ha.encode_report(1 << 40)
    assert [offset for part in pieces(stream, size) for offset in reports.feed(part)] == [0, 1 << 40]
