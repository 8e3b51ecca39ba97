"""Codes have names; unknown ones keep their number."""

from tandemq.codec.codes import RequestCode, code_name


def test_names() -> None:
    assert code_name(RequestCode.SEND_MESSAGE_V2) == "SEND_MESSAGE_V2"
    assert code_name(99_999) == "99999"
