"""Ext fields are read by type; what is wrong with one is said by its name."""

import pytest

from tandemq.codec import ext_fields
from tandemq.errors import MalformedBody


def test_fields_that_are_there() -> None:
    ext = {"topic": "T", "queueId": "-3", "yes": "True", "one": "1", "no": "0"}
    assert ext_fields.text(ext, "topic") == "T"
    assert ext_fields.number(ext, "queueId") == -3
    assert [ext_fields.boolean(ext, name) for name in ("yes", "one", "no")] == [True, True, False]


def test_fields_that_are_not_there_have_their_default() -> None:
    assert ext_fields.text({"topic": ""}, "topic", "D") == "D"
    assert ext_fields.number({"queueId": ""}, "queueId", 7) == 7
    assert ext_fields.boolean({}, "batch", True) is True


def test_what_is_missing_or_no_number_is_named() -> None:
    for read in (ext_fields.text, ext_fields.number):
        with pytest.raises(MalformedBody, match="the request has no queueId"):
            read({}, "queueId")
    with pytest.raises(MalformedBody, match="queueId='four': a whole number was expected"):
        ext_fields.number({"queueId": "four"}, "queueId")
