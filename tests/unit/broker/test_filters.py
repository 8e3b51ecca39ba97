"""Tag and SQL92 subscriptions as one filter."""

import pytest

from tandemq.broker.filters import message_filter
from tandemq.broker.subscriptions import SQL92, parse_subscription
from tandemq.errors import ReplyError
from tandemq.formats.record import encode_record
from tandemq.model.message import encode_properties, java_hash


def _record(**properties: str) -> memoryview:
    host = bytes(8)
    return memoryview(
        encode_record(
            topic="T", queue_id=0, queue_offset=0, physical_offset=0, born_timestamp=0, born_host=host,
            store_timestamp=0, store_host=host, body=b"x", properties=encode_properties(properties),
        )
    )  # fmt: skip


def test_tags_pass_by_code_of_the_text() -> None:
    """Codes come from the expression; blanks around a tag do not count; * passes everything without a comparison."""
    wanted = message_filter(parse_subscription("T", " A || B "), property_filter=False)
    assert wanted.matches(java_hash("A"), {})
    assert wanted.matches(java_hash("B"), {})
    assert not wanted.matches(java_hash("C"), {})
    assert message_filter(parse_subscription("T", "*"), property_filter=False).match_code is None


def test_tag_filters_do_not_look_into_records() -> None:
    """A tag pull hands on the very list the store gave."""
    records = [_record(a="1")]
    assert message_filter(parse_subscription("T", "A"), property_filter=False).keep(records) is records


def test_sql_keeps_records_by_their_properties() -> None:
    """Properties decide; the tags code is not compared at all."""
    wanted = message_filter(parse_subscription("T", "a > 1", SQL92), property_filter=True)
    assert wanted.match_code is None
    first, second = _record(a="1"), _record(a="2", TAGS="x")
    assert wanted.keep([first, second]) == [second]
    assert wanted.matches(0, {"a": "5"})


@pytest.mark.parametrize(
    ("expression", "kind", "allowed", "code"),
    [("a > 1", SQL92, False, 1), ("a >", SQL92, True, 23), ("x", "GROOVY", True, 23)],
)
def test_what_can_not_be_had_is_answered_with_upstreams_code(
    expression: str, kind: str, allowed: bool, code: int
) -> None:
    """Property filters are a switch; a broken expression is SUBSCRIPTION_PARSE_FAILED."""
    with pytest.raises(ReplyError) as caught:
        message_filter(parse_subscription("T", expression, kind), property_filter=allowed)
    assert caught.value.code == code
