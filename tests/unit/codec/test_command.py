"""Every codec case is data: a command and its bytes. The same list drives encoding and three ways of decoding."""

import pytest

from tandemq.codec.command import Command, decode_command, encode_request, encode_response, response_head
from tandemq.codec.frame import FRAME_SIZE_MAX, JSON, ROCKETMQ, FrameReader, encode_frame
from tandemq.errors import CodecError, FrameTooLarge, MalformedHeader, ReplyError


def frame(header: bytes, body: bytes = b"", encoding: int = JSON) -> bytes:
    return encode_frame(encoding, header, body)


CASES = {
    "reference vector, binary": (
        Command(30, {"topic": "T", "queueId": "0"}, opaque=5),
        ROCKETMQ,
        bytes.fromhex(
            "00000033 0100002f 001e 03 0197 00000005 00000000 00000000 0000001a"
            "0005 746f706963 00000001 54 0007 71756575654964 00000001 30"
        ),
    ),
    "reference vector, JSON": (
        Command(30, {"queueId": "0", "topic": "T"}, opaque=5),
        JSON,
        bytes.fromhex("0000006d00000069")
        + b'{"code":30,"extFields":{"queueId":"0","topic":"T"},"flag":0,"language":"PYTHON","opaque":5,"version":407}',
    ),
    "no ext fields, with body": (
        Command(34, {}, b"{}", opaque=1, language="JAVA", version=63),
        JSON,
        frame(b'{"code":34,"flag":0,"language":"JAVA","opaque":1,"version":63}', b"{}"),
    ),
    "one-way with remark": (
        Command(40, {"consumerGroup": "g"}, opaque=7, flag=2, remark="why"),
        JSON,
        frame(
            b'{"code":40,"extFields":{"consumerGroup":"g"},"flag":2,"language":"PYTHON","opaque":7,"remark":"why",'
            b'"version":407}'
        ),
    ),
    "text beyond ASCII": (
        Command(10, {"properties": "k\x01ü€𝄞\x02"}, opaque=-1),
        JSON,
        frame(
            '{"code":10,"extFields":{"properties":"k\\u0001ü€𝄞\\u0002"},"flag":0,"language":"PYTHON","opaque":-1,'
            '"version":407}'.encode()
        ),
    ),
    "binary response with remark": (
        Command(17, {}, opaque=2**31 - 1, flag=1, remark="ö", language="GO", version=317),
        ROCKETMQ,
        frame(bytes.fromhex("0011 09 013d 7fffffff 00000001 00000002 c3b6 00000000"), b"", ROCKETMQ),
    ),
}


@pytest.mark.parametrize(("command", "encoding", "data"), CASES.values(), ids=CASES.keys())
class TestCases:
    def test_encode(self, command: Command, encoding: int, data: bytes) -> None:
        assert encode_request(command, encoding) == data

    def test_decode_whole(self, command: Command, encoding: int, data: bytes) -> None:
        assert [decode_command(f) for f in FrameReader().feed(data)] == [command]

    def test_decode_byte_by_byte(self, command: Command, encoding: int, data: bytes) -> None:
        reader = FrameReader()
        frames = [f for i in range(len(data)) for f in reader.feed(data[i : i + 1])]
        assert [decode_command(f) for f in frames] == [command]
        assert reader.pending_size == 0

    def test_decode_with_trailing_bytes(self, command: Command, encoding: int, data: bytes) -> None:
        reader = FrameReader()
        frames = reader.feed(data + data + data[:11])
        assert [decode_command(f) for f in frames] == [command, command]
        assert reader.pending_size == 11
        assert [decode_command(f) for f in reader.feed(data[11:])] == [command]


TOLERATED = {
    "ext numbers and booleans (C++, ali-ons)": (
        b'{"code":310,"extFields":{"e":3,"k":false,"m":true,"x":1.5,"n":null},"opaque":4}',
        {"e": "3", "k": "false", "m": "true", "x": "1.5"},
    ),
    "trailing newline (C++)": (b'{"code":10,"extFields":{"a":"b"},"opaque":4}\n', {"a": "b"}),
    "numbers as text": (b'{"code":"10","extFields":{"a":"b"},"opaque":"4"}', {"a": "b"}),
    "raw control characters": (b'{"code":10,"extFields":{"i":"k\x01v\x02"},"opaque":4}', {"i": "k\x01v\x02"}),
    "unknown members, null ext": (b'{"code":10,"zz":{"y":[1]},"extFields":null,"opaque":4}', {}),
    "members in any order (Go)": (b'{"opaque":4,"extFields":{"a":"b"},"code":10}', {"a": "b"}),
}


@pytest.mark.parametrize(("header", "ext"), TOLERATED.values(), ids=TOLERATED.keys())
def test_headers_of_other_clients_are_understood(header: bytes, ext: dict[str, str]) -> None:
    """Receivers accept what real clients send; ext values become text."""
    command = decode_command(FrameReader().feed(frame(header))[0])
    assert (command.ext, command.opaque) == (ext, 4)


REFUSED = {
    "no JSON": b"hello",
    "wrong UTF-8": b'{"code":1,"remark":"\xff\xfe"}',
    "an array": b"[1,2]",
    "no code": b'{"opaque":1}',
    "code is no number": b'{"code":"x"}',
    "code is a boolean": b'{"code":true}',
    "code beyond 32 bits": b'{"code":4294967296}',
    "ext is a list": b'{"code":1,"extFields":["a"]}',
    "ext with an object": b'{"code":1,"extFields":{"a":{"b":"c"}}}',
    "deep nesting": b'{"code":1,"x":' + b"[" * 50_000,
    "huge ext map": b'{"code":1,"extFields":{' + b",".join(b'"k%d":"v"' % i for i in range(300)) + b"}}",
    "huge ext map of numbers": b'{"code":1,"extFields":{' + b",".join(b'"k%d":1' % i for i in range(300)) + b"}}",
    "empty": b"",
}


@pytest.mark.parametrize("header", REFUSED.values(), ids=REFUSED.keys())
def test_malformed_json_headers_raise(header: bytes) -> None:
    with pytest.raises(MalformedHeader):
        decode_command(FrameReader().feed(frame(header))[0])


BINARY = bytes.fromhex("001e 03 0197 00000005 00000000")
REFUSED_BINARY = {
    "too short": BINARY[:10],
    "remark leaves the header": BINARY + bytes.fromhex("7fffffff 00000000"),
    "negative remark": BINARY + bytes.fromhex("ffffffff 00000000"),
    "ext block leaves the header": BINARY + bytes.fromhex("00000000 00000010 0001"),
    "negative ext block": BINARY + bytes.fromhex("00000000 fffffff0"),
    "key leaves the block": BINARY + bytes.fromhex("00000000 00000003 00ff 61"),
    "value leaves the block": BINARY + bytes.fromhex("00000000 00000007 0001 61 7fffffff"),
    "block ends in a key length": BINARY + bytes.fromhex("00000000 00000001 00"),
    "negative key": BINARY + bytes.fromhex("00000000 00000006 ffff 00000000"),
    "wrong UTF-8": BINARY + bytes.fromhex("00000002 fffe 00000000"),
}


@pytest.mark.parametrize("header", REFUSED_BINARY.values(), ids=REFUSED_BINARY.keys())
def test_malformed_binary_headers_raise(header: bytes) -> None:
    with pytest.raises(MalformedHeader):
        decode_command(FrameReader().feed(frame(header, encoding=ROCKETMQ))[0])


def test_binary_empty_values_are_absent() -> None:
    """Java reads a zero-length string as null."""
    header = BINARY + bytes.fromhex("00000000 00000007 0001 61 00000000")
    assert decode_command(FrameReader().feed(frame(header, encoding=ROCKETMQ))[0]).ext == {}


def test_unknown_encoding_is_malformed() -> None:
    with pytest.raises(MalformedHeader, match="encoding 7"):
        decode_command(FrameReader().feed(frame(b"{}", encoding=7))[0])


def test_code_beyond_16_bits_needs_json() -> None:
    with pytest.raises(MalformedHeader, match="200050"):
        encode_request(Command(200050), ROCKETMQ)


@pytest.mark.parametrize(
    ("prefix", "error"),
    [
        ("01000000 00000000", FrameTooLarge),  # 16 MiB + 4
        ("ffffffff 00000000", FrameTooLarge),  # -1
        ("00000003 00000000", MalformedHeader),  # shorter than its own second field
        ("00000010 0000000d", MalformedHeader),  # header one byte longer than the frame
        ("00ffffff 00ffff00", FrameTooLarge),  # header beyond its limit
        ("00000000 00000000", MalformedHeader),
    ],
)
def test_sizes_that_break_a_limit_end_the_stream(prefix: str, error: type[CodecError]) -> None:
    reader = FrameReader()
    assert reader.feed(bytes.fromhex(prefix)) == []
    assert type(reader.error) is error
    with pytest.raises(error):
        reader.feed(b"more")


def test_frames_before_a_broken_one_are_given() -> None:
    """What was complete is served, as if it had come in a read of its own."""
    command, _, data = CASES["reference vector, JSON"]
    for start in (0, 5):  # in one read, or finished by the read that also brings the broken one
        reader = FrameReader()
        reader.feed(data[:start])
        frames = reader.feed(data[start:] + b"\xff" * 20)
        assert [decode_command(frame) for frame in frames] == [command]
        assert isinstance(reader.error, FrameTooLarge)
        assert reader.pending_size == 0


def test_largest_frame_is_taken_and_costs_one_copy() -> None:
    """16 MiB, the first length field included, in pieces."""
    header = b'{"code":1}'
    body = bytes(FRAME_SIZE_MAX - 8 - len(header))
    data = frame(header, body)
    reader = FrameReader()
    frames = [f for i in range(0, len(data), 1 << 18) for f in reader.feed(data[i : i + (1 << 18)])]
    assert len(frames) == 1
    assert len(frames[0][2]) == len(body)


def test_response_frames() -> None:
    """Responses always carry extFields: the C++ client dereferences it."""
    data = encode_response(9, 17, 'no "topic"', {"a": "b"}, b"xyz")
    command = decode_command(FrameReader().feed(data)[0])
    assert (command.code, command.opaque, command.flag, command.remark) == (17, 9, 1, 'no "topic"')
    assert (command.ext, bytes(command.body), command.is_response) == ({"a": "b"}, b"xyz", True)
    assert b'"extFields":{}' in encode_response(1, 0)
    assert response_head(9, 17, 'no "topic"', {"a": "b"}, 3) + b"xyz" == data


def test_reply_code_becomes_an_error_on_request() -> None:
    assert Command(0).raise_for_code().code == 0
    assert Command(19).raise_for_code(19).code == 19
    with pytest.raises(ReplyError, match="gone") as caught:
        Command(17, remark="gone").raise_for_code()
    assert caught.value.code == 17
