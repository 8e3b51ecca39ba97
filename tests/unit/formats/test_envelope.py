"""Delayed and transactional messages on their way into the log and out of it."""

import pytest

from tandemq.errors import CorruptRecord
from tandemq.formats import envelope
from tandemq.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC


def test_delay_levels_are_read_as_upstream_writes_them() -> None:
    levels = envelope.parse_delay_levels()
    assert (len(levels), levels[0], levels[4], levels[17]) == (18, 1000, 60_000, 7_200_000)
    with pytest.raises(ValueError, match="5x"):
        envelope.parse_delay_levels("1s 5x")


@pytest.mark.parametrize(("asked", "queue_id", "level"), [("1", 0, "1"), ("18", 17, "18"), ("99", 17, "18")])
def test_a_delayed_message_goes_to_the_queue_of_its_level_and_comes_back(asked: str, queue_id: int, level: str) -> None:
    wrapped = envelope.to_schedule("topic", 3, 0x300, {"DELAY": asked, "TAGS": "t"})
    assert (wrapped.topic, wrapped.queue_id, wrapped.sys_flag) == (SCHEDULE_TOPIC, queue_id, 0x300)
    assert wrapped.properties["DELAY"] == level
    back = envelope.from_schedule(wrapped.sys_flag, wrapped.properties)
    assert (back.topic, back.queue_id, back.properties["TAGS"]) == ("topic", 3, "t")


def test_a_delay_that_is_no_number_is_none() -> None:
    assert [envelope.delay_level({"DELAY": text}) for text in ("", "x", "-1", "9" * 30, "3")] == [0, 0, 0, 0, 3]


def test_due_times() -> None:
    levels = envelope.parse_delay_levels("1s 5m")
    assert envelope.delivery_time(1000, 2, levels) == 301_000
    assert envelope.delivery_time(1000, 7, levels) == 2000


def test_a_half_message_hides_its_type_and_a_commit_shows_it() -> None:
    half = envelope.to_half("topic", 5, 0x4 | 0x1, {"UNIQ_KEY": "U"})
    assert (half.topic, half.queue_id, half.sys_flag) == (TRANS_HALF_TOPIC, 0, 0x1)
    assert half.properties["__transactionId__"] == "U"
    real = envelope.from_half(half.sys_flag, half.properties)
    assert (real.topic, real.queue_id, real.sys_flag) == ("topic", 5, 0x8 | 0x1)


def test_op_bodies_of_both_versions_are_read() -> None:
    assert envelope.encode_op_body([7]) == b"7"
    assert envelope.encode_op_body([7, 9]) == b"7,9,"
    assert envelope.decode_op_body(b"7") == [7]
    assert envelope.decode_op_body(b"7,9,") == [7, 9]
    with pytest.raises(CorruptRecord):
        envelope.decode_op_body(b"7;9")


def test_a_wrapped_message_without_its_destination_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="REAL_TOPIC"):
        envelope.from_half(0, {"REAL_QID": "1"})
