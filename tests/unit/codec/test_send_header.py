"""Send headers of the real clients, decoded in one pass or by the slow road, give the same struct."""

import pytest

from tandemq.codec.command import Command, encode_request
from tandemq.codec.frame import ROCKETMQ, FrameReader
from tandemq.codec.header_json import decode
from tandemq.codec.send_header import (
    SEND_DECODE_ERRORS,
    SendHeader,
    decode_send,
    decode_send_request,
    send_decoder,
    send_ext,
    send_header_of,
)
from tandemq.errors import MalformedHeader

EXPECTED = SendHeader(
    producerGroup="g", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=1, sysFlag=0,
    bornTimestamp=1_700_000_000_000, flag=2, properties="k\x01v\x02", reconsumeTimes=0, unitMode=False,
    maxReconsumeTimes=None, batch=False, bname="", version=407,
)  # fmt: skip

JAVA = (
    b'{"code":310,"extFields":{"a":"g","b":"T","c":"TBW102","d":"4","e":"1","f":"0","g":"1700000000000","h":"2",'
    b'"i":"k\\u0001v\\u0002","j":"0","k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":5,'
    b'"serializeTypeCurrentRPC":"JSON","version":407}'
)
ALI_ONS = (
    b'{"code":310,"language":"JAVA","opaque":5,"flag":0,"version":407,"extFields":{"a":"g","b":"T","c":"TBW102","d":4,'
    b'"e":1,"f":0,"g":1700000000000,"h":2,"i":"k\\u0001v\\u0002","j":0,"k":false}}'
)
CPP = (
    b'{"code":10,"extFields":{"AccessKey":"","OnsChannel":"ALIYUN","Signature":"x","batch":"0","bornTimestamp":'
    b'"1700000000000","defaultTopic":"TBW102","defaultTopicQueueNums":4,"flag":2,"producerGroup":"g","properties":'
    b'"k\\u0001v\\u0002","queueId":1,"reconsumeTimes":"0","sysFlag":0,"topic":"T","unitMode":"0"},"flag":0,'
    b'"language":"CPP","opaque":5,"remark":"","version":407}\n'
)
GO = (
    b'{"code":10,"language":"GO","version":407,"opaque":5,"flag":0,"remark":"","extFields":{"batch":"false",'
    b'"bornTimestamp":"1700000000000","defaultTopic":"TBW102","defaultTopicQueueNums":"4","flag":"2","producerGroup":'
    b'"g","properties":"k\\u0001v\\u0002","queueId":"1","reconsumeTimes":"0","sysFlag":"0","topic":"T",'
    b'"unitMode":"false"}}'
)


@pytest.mark.parametrize(("header", "code"), [(JAVA, 310), (ALI_ONS, 310), (CPP, 10), (GO, 10)])
def test_every_client_gives_the_same_send(header: bytes, code: int) -> None:
    """Fast and slow decoding agree, whatever types the client chose."""
    opaque, flag, send = decode_send_request(header, code)
    fields = decode(header)
    slow = send_header_of(fields[6], code, fields[2])
    for found in (send, slow):
        assert {name: getattr(found, name) for name in EXPECTED.__struct_fields__} == {
            name: getattr(EXPECTED, name) for name in EXPECTED.__struct_fields__
        }
    assert (opaque, flag) == (5, 0)


@pytest.mark.parametrize(("header", "code"), [(JAVA, 310), (CPP, 10), (GO, 10), (ALI_ONS, 310)])
def test_real_headers_take_the_fast_road(header: bytes, code: int) -> None:
    assert send_decoder(code)(header).extFields.topic == "T"


@pytest.mark.parametrize(("text", "expected"), [('"true"', True), ('"1"', True), ("true", True), ('"0"', False)])
def test_batch_flag_of_the_cpp_client(text: str, expected: bool) -> None:
    """C++ says "1"; Java would read that as false and store the batch as one message."""
    header = JAVA.replace(b'"m":"false"', b'"m":' + text.encode())
    assert decode_send(header, 310).batch is expected


def test_null_and_numeric_text_fields_take_the_slow_road() -> None:
    header = JAVA.replace(b'"i":"k\\u0001v\\u0002"', b'"i":null').replace(b'"b":"T"', b'"b":77')
    with pytest.raises(SEND_DECODE_ERRORS):
        send_decoder(310)(header)
    send = decode_send(header, 310)
    assert (send.topic, send.properties) == ("77", "")


@pytest.mark.parametrize("short", [True, False])
def test_round_trip_in_both_encodings(short: bool) -> None:
    code = 310 if short else 10
    ext = send_ext(EXPECTED, short=short)
    for encoding in (0, ROCKETMQ):
        _, header, _ = FrameReader().feed(encode_request(Command(code, ext), encoding))[0]
        assert decode_send(header, code, encoding).topic == "T"
        assert decode_send(header, code, encoding).properties == "k\x01v\x02"


@pytest.mark.parametrize(
    ("letter", "value"), [("e", 2**31), ("f", -(2**31) - 1), ("g", 2**63), ("j", 2**40), ("l", 2**31)]
)
def test_numbers_that_do_not_fit_a_record_are_refused(letter: str, value: int) -> None:
    """On both roads, before anything is stored."""
    ext = {**send_ext(EXPECTED, short=True), letter: str(value)}
    for encoding in (0, ROCKETMQ):
        _, header, _ = FrameReader().feed(encode_request(Command(310, ext), encoding))[0]
        with pytest.raises(MalformedHeader, match="bits"):
            decode_send(header, 310, encoding)


@pytest.mark.parametrize("broken", [JAVA.replace(b'"b":"T",', b""), JAVA.replace(b'"d":"4"', b'"d":"four"')])
def test_missing_or_unreadable_fields_are_named(broken: bytes) -> None:
    with pytest.raises(MalformedHeader, match=r"topic|defaultTopicQueueNums"):
        decode_send(broken, 310)
