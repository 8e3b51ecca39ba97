"""The message record: known bytes both ways, every combination of hosts and versions, and what must be refused."""

import pytest

from tandemq.errors import CorruptRecord
from tandemq.formats.record import (
    MAGIC_BLANK,
    SIZE_MAGIC,
    check_record,
    encode_record,
    parse_record,
    store_timestamp,
    tail_bounds,
    verify_crc,
    walk,
)
from tandemq.model.message import decode_properties, offset_message_id

HOST = bytes.fromhex("0a00000100002a9f")
BORN = bytes.fromhex("0a00000900009c40")
V6 = bytes(range(16)) + bytes.fromhex("00002a9f")
KNOWN = bytes.fromhex(
    "00000068daa320a73610a6860000000200000000000000000000000700000000000004000000000000"
    "00018bcfe568000a00000900009c400000018bcfe5687b0a00000100002a9f000000000000000000000000"
    "0000000568656c6c6f01540007544147530141" + "02"
)


def known(**changes: object) -> bytes:
    fields: dict = {
        "topic": "T",
        "queue_id": 2,
        "queue_offset": 7,
        "physical_offset": 1024,
        "born_timestamp": 1700000000000,
        "born_host": BORN,
        "store_timestamp": 1700000000123,
        "store_host": HOST,
        "body": b"hello",
        "properties": b"TAGS\x01A\x02",
    }
    return encode_record(**{**fields, **changes})


def test_known_bytes() -> None:
    """The vector that two other implementations accepted."""
    assert known() == KNOWN
    message = parse_record(KNOWN, crc=True)
    assert (message.topic, message.queue_id, message.queue_offset, message.physical_offset) == ("T", 2, 7, 1024)
    assert (message.body, message.properties, message.size) == (b"hello", {"TAGS": "A"}, 104)
    assert message.message_id == "0A00000100002A9F0000000000000400" == offset_message_id(HOST, 1024)
    assert message.body_crc == 0x3610A686


@pytest.mark.parametrize("born", [BORN, V6])
@pytest.mark.parametrize("store", [HOST, V6])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "%RETRY%" + "g" * 121, "主题"])
@pytest.mark.parametrize("body", [b"", b"x" * 3000])
def test_round_trip(born: bytes, store: bytes, topic: str, body: bytes) -> None:
    """Hosts set their bits of sysFlag, the topic's length the version; trailing bytes do not matter."""
    raw = known(topic=topic, born_host=born, store_host=store, body=body, sys_flag=0x300, flag=-5)
    message = parse_record(b"before" + raw + b"after", 6, crc=True)
    assert (message.topic, message.born_host, message.store_host, message.body) == (topic, born, store, body)
    assert message.sys_flag == 0x300 | (0x10 if len(born) == 20 else 0) | (0x20 if len(store) == 20 else 0)
    assert message.flag == -5
    assert store_timestamp(raw, 0, message.sys_flag) == message.store_timestamp
    start, stop, properties_start, properties_stop = tail_bounds(raw, 0)
    assert raw[start:stop].decode() == topic
    assert decode_properties(raw[properties_start:properties_stop]) == {"TAGS": "A"}
    assert int.from_bytes(raw[4:8], "big") == (0xDAA320A7 if len(topic.encode()) <= 127 else 0xDAA320AB)


def test_every_shorter_piece_is_refused() -> None:
    """A record cut anywhere is not a record."""
    for size in range(len(KNOWN)):
        assert check_record(KNOWN, 0, size) is not None
        with pytest.raises(CorruptRecord):
            parse_record(KNOWN[:size])


def test_a_changed_body_fails_its_checksum() -> None:
    damaged = bytearray(KNOWN)
    damaged[90] ^= 1
    assert verify_crc(KNOWN, 0)
    assert not verify_crc(damaged, 0)
    with pytest.raises(CorruptRecord, match="CRC"):
        parse_record(damaged, crc=True)


def test_walk_ends_where_records_end() -> None:
    """Zeros, garbage, a cut record, or the blank that ends a segment."""
    blank = SIZE_MAGIC.pack(50, MAGIC_BLANK) + bytes(42)
    two = KNOWN + KNOWN
    assert [position for position, _, _ in walk(two + bytes(50), 0, 258)] == [0, 104]
    assert [position for position, _, _ in walk(two + b"garbage" * 9, 0, 270)] == [0, 104]
    assert [position for position, _, _ in walk(two, 0, 207)] == [0]
    assert [(p, s) for p, s, _ in walk(two + blank, 0, 258)] == [(0, 104), (104, 104), (208, 50)]


@pytest.mark.parametrize("host", [b"", bytes(7), bytes(16)])
def test_a_host_of_no_known_length_is_refused(host: bytes) -> None:
    with pytest.raises(CorruptRecord, match="host"):
        known(born_host=host)
