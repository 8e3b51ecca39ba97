"""Positions of fields in many records, whatever their versions and hosts."""

import pytest
from tests.made_log import make_log

from tandemq.formats.record import BODY_SIZE_AT, SYS_FLAG_AT, parse_record, tail_bounds
from tandemq.formats.record_fields import Fields, groups_of_one_size
from tandemq.formats.record_starts import hop


def fields_of(log: bytes) -> Fields:
    return Fields(log, hop(log, 0, len(log), len(log)).positions)


@pytest.mark.parametrize("seed", range(4))
def test_fields_are_where_the_plain_decoder_finds_them(seed: int) -> None:
    log, starts = make_log(100, seed)
    fields = fields_of(log)
    assert fields.broken() == {}
    topics, topic_of = fields.topics
    for row, start in enumerate(starts):
        message = parse_record(log, start)
        body_at = int(fields.body_at[row])
        assert log[body_at : body_at + int(fields.body_size[row])] == message.body
        assert topics[topic_of[row]].decode() == message.topic
        assert fields.store_timestamp()[row] == message.store_timestamp
        assert fields.properties(row) == log[slice(*tail_bounds(log, start)[2:])]


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (BODY_SIZE_AT, 0x7FFFFFFF, "body length"),
        (BODY_SIZE_AT, 3, "add up|topic length"),
        (SYS_FLAG_AT, 0x30, "fixed|body|topic|add"),
    ],
)
def test_lengths_that_do_not_add_up_are_told(at: int, value: int, reason: str) -> None:
    """Only the damaged record is named."""
    import re

    from tests.made_log import V4

    log, starts = make_log(9, sys_flag=0, body=b"b" * 50, born_host=V4, store_host=V4, topic="t")
    damaged = bytearray(log)
    damaged[starts[4] + at : starts[4] + at + 4] = value.to_bytes(4, "big")
    broken = fields_of(bytes(damaged)).broken()
    assert list(broken) == [4]
    assert re.search(reason, broken[4])


def test_rows_are_grouped_by_size() -> None:
    import numpy as np

    rows, groups = groups_of_one_size(np.array([5, 3, 5, 0]))
    assert [(rows[start:stop].tolist(), size) for start, stop, size in groups] == [([3], 0), ([1], 3), ([0, 2], 5)]
    assert groups_of_one_size(np.array([], dtype=np.int64))[1] == []
