"""Whether a send's properties may simply be appended to: the short way must give the map that the long one gives."""

import pytest

from tandemq.broker.send_properties import broker_suffix, plain_key
from tandemq.model.message import decode_properties, encode_properties


def text(**properties: str) -> str:
    return encode_properties(properties).decode()


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({}, ""),
        ({"UNIQ_KEY": "0A01"}, "0A01"),
        ({"UNIQ_KEY": "0A01", "WAIT": "true", "TAGS": "a"}, "0A01"),
        ({"TAGS": "a", "KEYS": "k1 k2", "WAIT": "false", "UNIQ_KEY": "0A01"}, "0A01"),
        ({"colour": "red", "UNIQ_KEY": "0A01"}, "0A01"),
        ({"colour": "red"}, ""),
    ],
)
def test_most_messages_are_plain(properties: dict[str, str], key: str) -> None:
    assert plain_key(text(**properties)) == key


@pytest.mark.parametrize(
    "name",
    ["DELAY", "TRAN_MSG", "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK", "REPLY_TO_CLIENT", "TIMER_DELAY_SEC",
     "TIMER_DELIVER_MS", "__TQ_COPIES"],
)  # fmt: skip
@pytest.mark.parametrize("others", [{}, {"TAGS": "a", "UNIQ_KEY": "0A01"}, {"colour": "red", "WAIT": "true"}])
def test_what_asks_for_more_is_not_plain(name: str, others: dict[str, str]) -> None:
    assert plain_key(text(**others, **{name: "1"})) is None
    assert plain_key(text(**{name: "1"}, **others)) is None


def test_a_name_that_ends_like_the_unique_key_is_not_taken_for_it() -> None:
    assert plain_key(text(MY_UNIQ_KEY="no")) is None


def test_a_text_without_its_last_separator_is_read() -> None:
    """Some clients leave it out."""
    assert plain_key("TAGS\x01a\x02UNIQ_KEY\x010A01") == "0A01"


def test_what_the_broker_adds_is_read_back() -> None:
    whole = text(TAGS="a") + broker_suffix("cluster", "DefaultRegion", trace_on=True)
    assert decode_properties(whole.encode()) == {
        "TAGS": "a", "CLUSTER": "cluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip
    assert broker_suffix("c", "r", trace_on=False).endswith("TRACE_ON\x01false\x02")
