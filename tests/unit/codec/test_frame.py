"""Frames come out whole whatever the pieces in which their bytes came in."""

import pytest

from tandemq.codec.frame import JSON, ROCKETMQ, FrameReader, encode_frame
from tandemq.errors import CodecError, FrameTooLarge, MalformedHeader

FRAMES = [(JSON, b'{"code":1}', b""), (ROCKETMQ, b"\0" * 21, b"body"), (JSON, b"{}", b"x" * 300)]
STREAM = b"".join(encode_frame(*frame) for frame in FRAMES)


def received(reader: FrameReader, *pieces: bytes) -> list[tuple[int, bytes, bytes]]:
    return [(kind, header, bytes(body)) for piece in pieces for kind, header, body in reader.feed(piece)]


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 100, len(STREAM)])
def test_any_split_gives_the_same_frames(size: int) -> None:
    reader = FrameReader()
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert received(reader, *pieces) == FRAMES
    assert reader.pending_size == 0


def test_the_start_of_a_frame_is_held() -> None:
    reader = FrameReader()
    assert received(reader, STREAM[:-1]) == FRAMES[:2]
    assert reader.pending_size == len(encode_frame(*FRAMES[2])) - 1
    assert received(reader, STREAM[-1:]) == FRAMES[2:]


@pytest.mark.parametrize(
    ("prefix", "kind", "told"),
    [
        ((1000).to_bytes(4, "big") + (10).to_bytes(4, "big"), FrameTooLarge, "frame of 1004 bytes"),
        ((20).to_bytes(4, "big") + (17).to_bytes(4, "big"), MalformedHeader, "header of 17 bytes"),
        ((90).to_bytes(4, "big") + (80).to_bytes(4, "big"), FrameTooLarge, "header of 80 bytes"),
    ],
)
def test_a_frame_that_breaks_a_limit_ends_the_stream(prefix: bytes, kind: type[CodecError], told: str) -> None:
    """What came before it is still given."""
    reader = FrameReader(frame_size_max=100, header_size_max=50)
    assert received(reader, encode_frame(JSON, b"{}") + prefix) == [(JSON, b"{}", b"")]
    assert isinstance(reader.error, kind)
    assert told in str(reader.error)
    with pytest.raises(kind):
        reader.feed(b"more")
