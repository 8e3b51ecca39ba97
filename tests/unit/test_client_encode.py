"""From a message to a send request."""

import pytest

from tandemq.client.config import ClientConfig, Compression, parse_namesrv
from tandemq.client.encode import outgoing, properties_text, send_fields, split_batch_list
from tandemq.client.ids import UniqueKeys, client_id
from tandemq.client.send_frame import SendTemplate
from tandemq.client.subscription import SQL92, TAG, subscription
from tandemq.codec.acl import sign
from tandemq.codec.batch import split_batch
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command, encode_request
from tandemq.codec.compression import decompress
from tandemq.errors import ClientError, ConfigError, InvalidMessage
from tandemq.model.message import ACK_COPIES, COMPRESSED, Message, decode_properties
from tandemq.model.topic import QueueRef

CONFIG = ClientConfig()


def test_properties_carry_what_brokers_and_consumers_look_for() -> None:
    message = Message(topic="T", body=b"x", tags="A", keys=("k1", "k2"), properties={"a": "b"}, delay_level=3)
    assert decode_properties(properties_text(message, "ID").encode()) == {
        "a": "b",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "WAIT": "true",
        "UNIQ_KEY": "ID",
    }


def test_a_unique_key_of_the_user_stays() -> None:
    message = Message(topic="T", body=b"x", properties={"UNIQ_KEY": "mine"})
    assert decode_properties(properties_text(message, "ID").encode())["UNIQ_KEY"] == "mine"


@pytest.mark.parametrize("method", [Compression.ZLIB, Compression.LZ4, Compression.ZSTD])
def test_large_bodies_are_compressed(method: Compression) -> None:
    body = b"abc" * 5000
    item = outgoing(Message(topic="T", body=body), "ID", ClientConfig(compress_type=method))
    assert item.sys_flag & COMPRESSED
    assert len(item.body) < 1000
    assert decompress(item.body, item.sys_flag) == body


def test_small_and_incompressible_bodies_stay() -> None:
    import random

    noise = random.Random(1).randbytes(8000)
    for body in (b"x" * 4096, noise):
        item = outgoing(Message(topic="T", body=body), "ID", CONFIG)
        assert (item.body, item.sys_flag) == (body, 0)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message(topic="T", body=b""), "empty"),
        (Message(topic="T", body=bytes(4 * 1024 * 1024 + 1)), "4194305 bytes"),
        (Message(topic="../x", body=b"x"), "characters"),
        (Message(topic="T", body=b"x", properties={"k\x02": "v"}), "separate"),
        (Message(topic="T", body=b"x", properties={"k": "v" * 33000}), "32767"),
    ],
)
def test_what_no_broker_takes_is_refused_with_the_numbers(message: Message, words: str) -> None:
    with pytest.raises(InvalidMessage, match=words):
        outgoing(message, "ID", CONFIG)


def test_the_fields_of_a_send_have_short_names() -> None:
    item = outgoing(Message(topic="T", body=b"x", flag=7), "ID", CONFIG)
    fields = send_fields(item, "G", 3, "broker-a", 1234, 4)
    assert fields["a"] == "G"
    assert (fields["b"], fields["e"], fields["g"], fields["h"]) == ("T", "3", "1234", "7")
    assert (fields["m"], "l" in fields) == ("false", False)


def test_a_list_is_split_by_encoded_size() -> None:
    messages = [Message(topic="T", body=bytes(400)) for _ in range(10)]
    keys = [f"K{i}" for i in range(10)]
    parts = list(split_batch_list(messages, keys, ClientConfig(batch_size_max=1024)))
    assert [len(part) for part, _ in parts] == [2, 2, 2, 2, 2]
    assert all(len(item.body) <= 1024 and item.batch for _, item in parts)
    assert ",".join(item.unique_key for _, item in parts) == ",".join(keys)
    elements = split_batch(parts[4][1].body)
    assert [decode_properties(bytes(properties))["UNIQ_KEY"] for _, _, properties in elements] == ["K8", "K9"]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one"),
        ([Message(topic="A", body=b"x"), Message(topic="B", body=b"x")], "one topic"),
        ([Message(topic="A", body=b"x", delay_level=1)], "delayed"),
        ([Message(topic="%RETRY%g", body=b"x")], "retry"),
        ([Message(topic="A", body=b"x"), Message(topic="A", body=b"x", properties={ACK_COPIES: "2"})], "same copies"),
    ],
)
def test_lists_that_are_no_batch(messages: list[Message], words: str) -> None:
    with pytest.raises(InvalidMessage, match=words):
        list(split_batch_list(messages, ["K"] * len(messages), CONFIG))


def test_unique_keys_have_upstreams_layout_and_differ() -> None:
    keys = UniqueKeys("10.1.2.3", pid=258)
    now_ms = 1_767_225_600_000 + 5_000  # five seconds into 2026
    made = {keys.next(now_ms) for _ in range(1000)}
    assert len(made) == 1000
    one = min(made)
    assert len(one) == 32
    assert one.startswith("0A010203" + "0102")
    assert int(one[20:28], 16) == 5_000


def test_client_ids_are_unique_unless_named() -> None:
    assert client_id("1.2.3.4", "", "") != client_id("1.2.3.4", "", "")
    assert client_id("1.2.3.4", "one", "u") == "1.2.3.4@one@u"


def test_the_signature_is_upstreams() -> None:
    """The test vector of the protocol reference: signed text `AK10T`."""
    fields = sign({"queueId": "0", "topic": "T"}, b"", "AK1", "SK1")
    assert fields["Signature"] == "CICusSIWGGrEcx5g+C2fRsM3OwM="
    assert fields["AccessKey"] == "AK1"


def test_subscriptions_are_checked() -> None:
    assert subscription("T", " ", TAG, 1).expression == "*"
    assert subscription("T", "A || B", TAG, 1).tags == ("A", "B")
    for expression, kind in (("||", TAG), ("*", SQL92), ("x", "OTHER")):
        with pytest.raises(ClientError):
            subscription("T", expression, kind, 1)


def test_configurations_that_can_not_work_are_refused() -> None:
    assert parse_namesrv("a:1; b:2") == ("a:1", "b:2")
    for options, words in (
        ({"namesrv": "nowhere"}, "host:port"),
        ({"namesrv": " ; "}, "empty"),
        ({"access_key": "x"}, "secretKey"),
        ({"pull_suspend_ms": 30_000}, "more than"),
        ({"retry_times": -1}, "at least 0"),
    ):
        with pytest.raises(ConfigError, match=words):
            ClientConfig(**options)  # type: ignore[arg-type]


def test_a_frame_from_the_template_is_the_frame_of_the_request() -> None:
    message = Message(topic="T-1", body=b"x" * 300, tags='quote"', keys=("ä",), properties={"a": "\n\\"}, flag=-3)
    item = outgoing(message, "ID", CONFIG)
    queue = QueueRef("T-1", "broker-ü", 12)
    fields = send_fields(item, "G%1", 12, "broker-ü", 1234567890123, 4)
    request = Command(RequestCode.SEND_MESSAGE_V2, fields, item.body, opaque=77)
    assert SendTemplate("G%1", queue, 4).frame(item, 1234567890123, 77) == encode_request(request)
