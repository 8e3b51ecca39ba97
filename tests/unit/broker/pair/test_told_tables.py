"""What a master says of its tables, decoded."""

import pytest

from tandemq.broker.pair.told_tables import read_told
from tandemq.errors import CodecError


def test_a_part_names_what_is_gone() -> None:
    told = read_told("offsets", b'{"offsetTable":{"T@g":{"0":5,"1":null},"T@h":null}}', True)
    assert told.is_part
    assert told.entries == {"T@g": {0: 5, 1: None}, "T@h": None}


def test_rocketmqs_own_text_is_a_whole_table() -> None:
    told = read_told("offsets", b'{"dataVersion":{"counter":3},"offsetTable":{"T@g":{0:5,1:6}}}')
    assert not told.is_part
    assert told.version.counter == 3
    assert told.entries == {"T@g": {0: 5, 1: 6}}


def test_two_parts_make_one() -> None:
    older = read_told("offsets", b'{"offsetTable":{"a@g":{"0":1,"1":1},"b@g":{"0":1},"c@g":null}}', True)
    newer = read_told("offsets", b'{"offsetTable":{"a@g":{"1":2},"b@g":null,"c@g":{"0":3}}}', True)
    assert older.followed_by(newer).entries == {"a@g": {0: 1, 1: 2}, "b@g": None, "c@g": {0: 3}}


def test_topics_groups_and_the_rest() -> None:
    topics = read_told("topics", b'{"topicConfigTable":{"T":{"readQueueNums":3},"gone":null}}', True)
    assert topics.entries["T"].read_queues == 3
    assert topics.entries["gone"] is None
    groups = read_told("groups", b'{"subscriptionGroupTable":{"g":{}},"forbiddenTable":{"g":{"T":2},"h":null}}', True)
    assert groups.entries["g"].name == "g"
    assert groups.forbidden == {"g": {"T": 2}, "h": None}
    assert read_told("delay", b'{"offsetTable":{"1":2}}').found == {"offsetTable": {"1": 2}}


def test_what_is_no_table_is_refused() -> None:
    for body in (b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{"T@g":{"0":"x"}}}'):
        with pytest.raises(CodecError):
            read_told("offsets", body, True)
