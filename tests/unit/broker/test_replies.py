"""Errors on the wire, and fields of requests."""

import struct

import pytest

from tandemq.broker.replies import STATUS_CODES, bool_field, int_field, reply_of, text_field
from tandemq.codec.codes import ResponseCode
from tandemq.errors import (
    ConfigError,
    CorruptRecord,
    DiskFull,
    LogPoisoned,
    MalformedBody,
    MessageTooLarge,
    OffsetOutOfRange,
    ReplicationError,
    ReplyError,
    StoreError,
    TandemError,
)
from tandemq.replication.acks import PutStatus


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ReplyError(ResponseCode.TOPIC_NOT_EXIST, "no such topic"), ResponseCode.TOPIC_NOT_EXIST),
        (DiskFull("full"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (LogPoisoned("fsync failed"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (MessageTooLarge("large"), ResponseCode.MESSAGE_ILLEGAL),
        (OffsetOutOfRange(5, 6, 7), ResponseCode.SYSTEM_ERROR),
        (StoreError("other"), ResponseCode.SYSTEM_ERROR),
        (CorruptRecord("crc"), ResponseCode.MESSAGE_ILLEGAL),
        (MalformedBody("no JSON"), ResponseCode.SYSTEM_ERROR),
        (ConfigError("k=v: must be x"), ResponseCode.INVALID_PARAMETER),
        (ReplicationError("alone"), ResponseCode.SLAVE_NOT_AVAILABLE),
    ],
)
def test_each_error_has_its_code_and_says_why(error: TandemError, code: ResponseCode) -> None:
    found, remark = reply_of(error)
    assert found == code
    assert remark == (error.remark if isinstance(error, ReplyError) else str(error))


@pytest.mark.parametrize("error", [ValueError("x"), struct.error("x"), KeyError("x"), TandemError("x")])
def test_any_other_error_is_named(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """A mistake of ours is logged with its trace; what nonsense of a client causes is not."""
    code, remark = reply_of(error)
    assert (code, remark.split(":")[0]) == (ResponseCode.SYSTEM_ERROR, type(error).__name__)
    assert bool(caplog.records) is isinstance(error, KeyError)


def test_every_outcome_of_a_send_has_a_code() -> None:
    assert set(STATUS_CODES) == set(PutStatus)


def test_required_fields_are_named_when_they_are_missing() -> None:
    for read in (text_field, int_field):
        with pytest.raises(MalformedBody, match="no topic"):
            read({"topic": ""}, "topic")
    assert text_field({"topic": "t"}, "topic") == "t"
    assert int_field({}, "queueId", 4) == 4


@pytest.mark.parametrize("value", ["x", "1.5", str(2**63), str(-(2**63) - 1), "9" * 5000])
def test_numbers_have_64_bits(value: str) -> None:
    with pytest.raises(MalformedBody) as refused:
        int_field({"queueId": value}, "queueId")
    code, remark = reply_of(refused.value)
    assert (code, remark.partition("=")[0]) == (ResponseCode.SYSTEM_ERROR, "queueId")
    assert len(remark) < 120
    assert int_field({"queueId": str(2**63 - 1)}, "queueId") == 2**63 - 1


@pytest.mark.parametrize(
    ("value", "found"), [("true", True), ("TRUE", True), ("1", True), ("false", False), ("0", False)]
)
def test_booleans_are_javas_words_and_the_numbers_of_cpp(value: str, found: bool) -> None:
    assert bool_field({"f": value}, "f", not found) is found


def test_an_absent_boolean_is_its_default() -> None:
    assert (bool_field({}, "f", True), bool_field({"f": ""}, "f", True), bool_field({}, "f")) == (True, True, False)
