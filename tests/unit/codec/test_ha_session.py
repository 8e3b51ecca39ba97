"""The HA port's bytes: every frame decodes the same however it is split, and damage is noticed."""

from collections.abc import Iterable
from typing import Any

import pytest

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Chunk, Head, encode_report
from tandemq.codec.ha_session import (
    Ack,
    Challenge,
    EpochItem,
    Hello,
    Members,
    Preamble,
    Refuse,
    SessionReader,
    Start,
    Take,
    Welcome,
)
from tandemq.errors import CodecError

HISTORY = [EpochItem(1, "aa", 0), EpochItem(3, "bb", 4096)]
CONTROLS: list[Any] = [
    Preamble(1, "n1"),
    Challenge(1, "n2", "proof", 7, "id"),
    Hello("g", "r", "proof", "10.0.0.1:1", 1024, 0, 5000, 4000, 7, "id", HISTORY, ["a", "b"]),
    Welcome("m", True, 7, "id", 0, 9000, 0, HISTORY, ["r"], ["r"]),
    Start(7, 5000, 4000),
    Refuse("disk-full", "no room", 7),
    Take(7, 100, 200),
    Members(["a"], []),
]


def pieces(data: bytes, size: int) -> Iterable[bytes]:
    return (data[i : i + size] for i in range(0, len(data), size))


def decoded(reader: Any, parts: Iterable[bytes]) -> list[Any]:
    """Events with the chunks of a frame joined, which is all that may differ between splits."""
    found: list[Any] = []
    for part in parts:
        for event in reader.feed(part):
            if isinstance(event, Chunk):
                found.append((bytes(event.data), event.last))
            else:
                found.append(event)
    joined: list[Any] = []
    for event in found:
        if isinstance(event, tuple) and joined and isinstance(joined[-1], tuple) and not joined[-1][1]:
            joined[-1] = (joined[-1][0] + event[0], event[1])
        else:
            joined.append(event)
    return joined


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_extended_stream_decodes_the_same_however_it_is_split(size: int) -> None:
    data = bytes(range(256)) * 3
    stream = b"".join(map(ha.encode_control, CONTROLS))
    stream += ha.encode_data_header(7, 5000, 4500, data, flush=True) + data
    stream += ha.encode_ack(7, 5768, 5000, 4500) + ha.encode_data_header(7, 5768, 5768, b"")
    expected = [
        *CONTROLS,
        Head(5000, len(data), 7, 4500, True),
        (data, True),
        Ack(7, 5768, 5000, 4500),
        Head(5768, 0, 7, 5768),
    ]
    assert decoded(SessionReader(), pieces(stream, size)) == expected


@pytest.mark.parametrize("size", [1000, ha.BULK_SIZE_MIN + 100_000])
def test_damaged_log_bytes_are_noticed_at_the_end_of_the_frame(size: int) -> None:
    data = bytes(size)
    header = ha.encode_data_header(1, 0, 0, data)
    for at in (0, size - 1):
        damaged = bytearray(data)
        damaged[at] ^= 1
        reader = SessionReader()
        decoded(reader, [header, bytes(damaged)])
        assert not reader.sound
    reader = SessionReader()
    decoded(reader, [header, *pieces(data, 70_001)])
    assert reader.sound


def test_bytes_received_straight_into_the_log_are_summed_as_if_they_had_been_fed() -> None:
    data = bytes(range(200)) * 100
    reader = SessionReader()
    list(reader.feed(ha.encode_data_header(1, 0, 0, data) + data[:300]))
    assert reader.missing == len(data) - 300
    assert not reader.took(memoryview(data)[300:900])
    assert reader.took(memoryview(data)[900:])
    assert reader.sound


def test_the_middle_of_a_bulk_frame_may_pass_unseen_but_its_edges_may_not() -> None:
    data = memoryview(bytes(range(256)) * 4500)
    reader = ha.SessionReader()
    [head] = reader.feed(ha.encode_data_header(1, 0, 0, data))
    assert isinstance(head, Head)
    assert reader.unsummed == 0
    assert not reader.took(data[: ha.BULK_SUMMED])
    assert reader.unsummed == len(data) - 2 * ha.BULK_SUMMED
    reader.passed(1000)
    assert reader.unsummed == len(data) - 2 * ha.BULK_SUMMED - 1000
    reader.passed(reader.unsummed)
    assert reader.unsummed == 0
    assert reader.took(data[-ha.BULK_SUMMED :])
    assert reader.sound


@pytest.mark.parametrize("at", range(16))
def test_a_flipped_bit_in_a_header_is_an_error_not_a_long_wait(at: int) -> None:
    frame = bytearray(ha.encode_ack(1, 2, 3, 4))
    frame[at] ^= 0x10
    with pytest.raises(CodecError):
        list(SessionReader().feed(bytes(frame) + bytes(100)))


def test_a_flipped_bit_in_a_control_frame_is_an_error() -> None:
    frame = bytearray(ha.encode_control(Start(1, 2, 3)))
    frame[-3] ^= 1
    with pytest.raises(CodecError):
        list(SessionReader().feed(bytes(frame)))


def test_the_first_byte_tells_the_two_protocols_apart() -> None:
    assert ha.is_extended(ha.encode_control(Preamble(1, ""))[0])
    assert not ha.is_extended(encode_report((1 << 63) - 1)[0])


def test_a_proof_is_bound_to_key_side_and_nonces() -> None:
    proof = ha.key_proof("k", "slave", "a", "b")
    assert ha.same_proof(proof, ha.key_proof("k", "slave", "a", "b"))
    for other in (
        ha.key_proof("x", "slave", "a", "b"),
        ha.key_proof("k", "master", "a", "b"),
        ha.key_proof("k", "slave", "ab", ""),
    ):
        assert not ha.same_proof(proof, other)


PACKED = ha.encode_packed(7, 100, 90, b"log bytes " * 1000, flush=True)


@pytest.mark.parametrize("size", [1, 7, 16, 1000, len(PACKED)])
def test_a_packed_frame_is_the_same_however_it_is_split(size: int) -> None:
    assert len(PACKED) < 200
    reader = SessionReader()
    (found,) = [event for piece in pieces(PACKED, size) for event in reader.feed(piece)]
    assert found == ha.Packed(Head(100, 10_000, 7, 90, True, False), b"log bytes " * 1000)
    assert reader.sound


def test_a_packed_frame_that_lies_about_its_size_is_refused_at_its_limit() -> None:
    """A few bytes must not become gigabytes, nor more or less than they say."""
    bomb = ha.compress(bytes(1 << 24), ha.COMPRESSION_ZSTD)[0]
    for size in (0, 1, ha.PACK_SIZE_MAX, ha.PACK_SIZE_MAX + 1):
        payload = ha._PACKED.pack(7, 100, 90, size) + bomb
        frame = ha._header(ha.FrameType.PACKED, len(payload), ha.crc32(payload)) + payload
        with pytest.raises(CodecError, match="packed HA frame"):
            list(SessionReader().feed(frame))


def test_a_damaged_packed_frame_is_noticed() -> None:
    for at in range(16, len(PACKED), 5):
        damaged = bytearray(PACKED)
        damaged[at] ^= 1
        with pytest.raises(CodecError):
            list(SessionReader().feed(bytes(damaged)))
