"""Keys and headers as bytes; what the sink had to encode comes back as it was."""

import base64

import pyarrow as pa

from tandemq.model.message import encode_properties
from tandemq.spark.columns import KAFKA_COLUMNS
from tandemq.spark.source.kafka_columns import kafka_headers, kafka_keys
from tandemq.spark.source.property_columns import PropertyTexts

HEADERS = KAFKA_COLUMNS["headers"][1]


def texts(*properties: dict[str, str]) -> PropertyTexts:
    return PropertyTexts(pa.array([encode_properties(one) for one in properties], type=pa.binary()))


def test_keys_are_bytes_and_null_if_there_are_none() -> None:
    assert kafka_keys(texts({"KEYS": "a b"}, {"TAGS": "x"})).to_pylist() == [b"a b", None]


def test_keys_that_were_no_text_are_decoded() -> None:
    odd = base64.b64encode(bytes([0, 255])).decode()
    found = kafka_keys(texts({"KEYS": odd, "TANDEMQ_KEY_ENCODING": "base64"}, {"KEYS": odd}))
    assert found.to_pylist() == [bytes([0, 255]), odd.encode()]


def test_headers_are_the_users_properties() -> None:
    found = kafka_headers(texts({"KEYS": "k", "a": "1", "b": "ü"}, {"TAGS": "x"}, {"c": "3"}), HEADERS)
    assert found.to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": "ü".encode()}], None, [{"key": "c", "value": b"3"}],
    ]  # fmt: skip


def test_binary_headers_are_decoded_by_name() -> None:
    odd = base64.b64encode(bytes([1, 2])).decode()
    found = kafka_headers(texts({"a,b": odd, "c": odd, "TANDEMQ_BINARY_HEADERS": "a%2Cb"}), HEADERS)
    assert found.to_pylist() == [[{"key": "a,b", "value": bytes([1, 2])}, {"key": "c", "value": odd.encode()}]]
