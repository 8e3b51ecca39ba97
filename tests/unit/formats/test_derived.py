"""What the views keep of one record."""

import pytest

from tandemq.formats.derived import (
    KEYS_NAME,
    UNIQUE_KEY_NAME,
    delivery_time_of,
    index_keys,
    is_in_index,
    is_in_queue,
    property_value,
    queue_tags_code,
)
from tandemq.model.message import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, tags_code
from tandemq.model.topic import SCHEDULE_TOPIC

DELAYS = (1000, 5000)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"KEYS\x01a\x02", b"a"),
        (b"x\x01y\x02KEYS\x01a b", b"a b"),
        (b"KEYS\x01a\x02KEYS\x01b\x02", b"b"),
        (b"KEYS\x01a\x02KEYS\x01\x02", b"a"),
        (b"MY_KEYS\x01a\x02", b""),
        (b"x\x01KEYS\x01y\x02", b""),
        (b"", b""),
    ],
)
def test_the_last_value_that_is_not_empty_counts(text: bytes, value: bytes) -> None:
    assert property_value(text, KEYS_NAME) == value


def test_the_unique_key_comes_before_the_words_of_the_others() -> None:
    assert list(index_keys(b"KEYS\x01b  a\x02UNIQ_KEY\x01u\x02")) == [b"u", b"b", b"a"]
    assert list(index_keys(b"")) == []
    assert property_value(b"UNIQ_KEY\x01u\x02", UNIQUE_KEY_NAME) == b"u"


def test_a_delayed_message_has_the_time_it_is_due_for_a_tags_code() -> None:
    """A level above the highest counts as the highest; without a level the tags count."""
    assert queue_tags_code("t", b"TAGS\x01A\x02DELAY\x012\x02", 100, DELAYS) == 65
    assert queue_tags_code(SCHEDULE_TOPIC, b"TAGS\x01A\x02DELAY\x012\x02", 100, DELAYS) == 5100
    assert queue_tags_code(SCHEDULE_TOPIC, b"DELAY\x0199\x02", 100, DELAYS) == 5100
    assert queue_tags_code(SCHEDULE_TOPIC, "TAGS\x01größe".encode(), 100, DELAYS) == tags_code("größe")
    assert delivery_time_of("t", b"DELAY\x012\x02", 100, DELAYS) is None


def test_undecided_transactions_stay_out_of_queues_and_undone_ones_out_of_the_index() -> None:
    kinds = (0, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
    assert [is_in_queue(kind) for kind in kinds] == [True, True, False, False]
    assert [is_in_index(kind) for kind in kinds] == [True, True, True, False]
