"""A broker's registration, in the forms of all versions."""

import pytest

from tandemq.codec.register import (
    WRAPPED_SINCE,
    body_crc,
    decode_registration,
    encode_registration,
    registration_pieces,
)
from tandemq.errors import MalformedBody
from tandemq.model.topic import DataVersion, TopicConfig

TOPICS = [TopicConfig(name="T", read_queues=4, write_queues=2), TopicConfig(name="U", perm=2)]
VERSION = DataVersion(1, 2, 3)


def test_the_json_form_comes_back_as_it_was_written() -> None:
    body = encode_registration(TOPICS, VERSION)
    found = decode_registration(body, compressed=False, peer_version=WRAPPED_SINCE)
    assert found.topics == {topic.name: topic for topic in TOPICS}
    assert found.version == VERSION
    assert 0 <= body_crc(body) < 2**31


def test_the_pieces_of_a_large_table_make_the_same_form() -> None:
    many = [TopicConfig(name=f"T{number}") for number in range(500)]
    pieces = list(registration_pieces(many, VERSION))
    assert len(pieces) > 5
    found = decode_registration(b"".join(pieces), compressed=False, peer_version=WRAPPED_SINCE)
    whole = decode_registration(encode_registration(many, VERSION), compressed=False, peer_version=WRAPPED_SINCE)
    assert found == whole


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("body", [b"{", b"\x00\x01", b'{"topicConfigSerializeWrapper":5}', b"x\x9c\x03\x00"])
def test_other_bytes_are_refused(body: bytes, compressed: bool) -> None:
    with pytest.raises(MalformedBody):
        decode_registration(body, compressed=compressed, peer_version=WRAPPED_SINCE)
