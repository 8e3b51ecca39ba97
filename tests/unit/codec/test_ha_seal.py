"""Seals: each frame has its own, which nobody makes without the key, and both ends derive the same ones."""

import hmac
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.poly1305 import Poly1305

from tandemq.codec.ha_classic import Head
from tandemq.codec.ha_seal import SEAL_SIZE, Handshake, Seal, SealBroken, log_sum
from tandemq.codec.ha_session import (
    Ack,
    Farewell,
    Refuse,
    SessionReader,
    Start,
    encode_ack,
    encode_control,
    encode_sealed_data_header,
    sealed,
)

PARTS = ("group", "slave nonce", "master nonce", 7, "id")


def seals(key: str = "key", *parts: object) -> tuple[Seal, Seal]:
    return Handshake(key, *(parts or PARTS)).seals()  # type: ignore[arg-type]


def reader(seal: Seal) -> SessionReader:
    secured = SessionReader()
    secured.secure(seal)
    return secured


def test_everything_of_the_handshake_is_in_the_proof_and_in_the_keys() -> None:
    known = Handshake("key", *PARTS)  # type: ignore[arg-type]
    others: list[tuple[str, tuple[object, ...]]] = [("other", PARTS)]
    for at, change in enumerate(("gro", "x", "y", 8, "other")):
        others.append(("key", (*PARTS[:at], change, *PARTS[at + 1 :])))
    others.append(("key", ("groups", "lave nonce", *PARTS[2:])))  # the same text, divided elsewhere
    for key, parts in others:
        other = Handshake(key, *parts)  # type: ignore[arg-type]
        assert other.proof() != known.proof()
        for mine, theirs in zip(known.seals(), other.seals(), strict=True):
            assert mine.next(b"h", b"p") != theirs.next(b"h", b"p")
    master, slave = known.seals()
    assert master.next(b"h", b"p") != slave.next(b"h", b"p")


def test_no_two_frames_have_the_same_seal() -> None:
    seal, _ = seals()
    assert len({seal.next(b"h", b"p") for _ in range(100)}) == 100


@pytest.mark.parametrize("key", [b"", b"k" * 32, b"k" * 64, b"k" * 65])
def test_a_seal_is_the_beginning_of_an_hmac(key: bytes) -> None:
    """Of the frame's number, header and payload, as the standard library makes it."""
    seal = Seal(key)
    for count in range(3):
        text = count.to_bytes(8, "big") + b"header" + b"payload"
        assert seal.next(b"header", b"payload") == hmac.digest(key, text, "sha256")[:SEAL_SIZE]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_sealed_stream_decodes_the_same_however_it_is_split(size: int, fast: bool) -> None:
    mine, theirs = seals()[0], seals()[0]
    data = bytes(range(256)) * 20
    stream = sealed(encode_control(Start(1, 2, 3)), mine)
    digest = log_sum(data, mine.fast_key if fast else None)
    stream += encode_sealed_data_header(mine, 7, 5, 4, len(data), digest, flush=True, lone=False, fast=fast) + data
    stream += sealed(encode_ack(1, 2, 3, 4), mine)
    secured, events = reader(theirs), []
    for at in range(0, len(stream), size):
        for event in secured.feed(stream[at : at + size]):
            events.append(event)
            assert secured.missing or secured.sound or isinstance(event, Start | Ack)
    assert [event for event in events if isinstance(event, Start | Ack | Head)] == [
        Start(1, 2, 3), Head(5, len(data), 7, 4, True), Ack(1, 2, 3, 4),
    ]  # fmt: skip
    assert secured.sound


def test_sums_of_log_bytes_are_those_of_the_libraries() -> None:
    """However they are cut into steps; the key of fast ones is derived from the direction's."""
    mine, theirs = seals()
    assert mine.fast_key == hmac.digest(Handshake("key", *PARTS)._derived(b"master"), b"log bytes", "sha256")  # type: ignore[arg-type]
    assert mine.fast_key != theirs.fast_key
    data = bytes(range(251)) * 2500  # more than two steps
    assert log_sum(data, None) == sha256(data).digest()
    assert log_sum(memoryview(data), mine.fast_key) == Poly1305.generate_tag(mine.fast_key, data)
    for fast in (False, True):
        running = mine.running_sum(fast)
        running.update(data[:1000])
        running.update(memoryview(data)[1000:])
        assert running.digest() == log_sum(data, mine.fast_key if fast else None)


def test_a_frame_that_says_another_sum_than_it_has_does_not_fit() -> None:
    """The flag is sealed as well: nobody makes a receiver compare the sums of two kinds."""
    data = bytes(100)
    for made, told in ((True, False), (False, True)):
        mine = seals()[0]
        digest = log_sum(data, mine.fast_key if made else None)
        header = encode_sealed_data_header(mine, 7, 5, 4, len(data), digest, flush=False, lone=False, fast=told)
        secured = reader(seals()[0])
        list(secured.feed(header))
        assert secured.took(memoryview(data))
        assert not secured.sound


@pytest.mark.parametrize("fast", [False, True])
def test_a_broken_seal_is_no_frame_and_no_log_byte_escapes_it(fast: bool) -> None:
    frame = bytearray(sealed(encode_ack(1, 2, 3, 4), seals()[0]))
    frame[-1] ^= 1
    with pytest.raises(SealBroken):
        list(reader(seals()[0]).feed(bytes(frame)))
    data = bytes(3 << 20)
    mine = seals()[0]
    digest = log_sum(data, mine.fast_key if fast else None)
    header = encode_sealed_data_header(mine, 7, 5, 4, len(data), digest, flush=False, lone=False, fast=fast)
    for at in (0, len(data) // 2, len(data) - 1):
        damaged = bytearray(data)
        damaged[at] ^= 1
        secured = reader(seals()[0])
        list(secured.feed(header))
        assert secured.unsummed == 0
        assert secured.took(memoryview(damaged))
        assert not secured.sound


def test_without_a_seal_only_a_farewell_is_heard_and_it_carries_no_epoch() -> None:
    secured = reader(seals()[0])
    [event] = secured.feed(encode_control(Refuse("key-refused", "x" * 5000, 99)))
    assert isinstance(event, Farewell)
    assert len(event.text) <= 1024
    assert not hasattr(event, "number")
    with pytest.raises(SealBroken):
        list(secured.feed(encode_ack(1, 2, 3, 4)))
    with pytest.raises(SealBroken):
        list(SessionReader().feed(sealed(encode_ack(1, 2, 3, 4), seals()[0])))


def test_a_seal_tells_nothing_of_its_key() -> None:
    assert "key" not in repr(Seal(b"key"))
    assert len(seals()[0].next(b"", b"")) == SEAL_SIZE
