"""Marks in the log: what is written is read, and what is not understood does no harm."""

import pytest

from tandemq.formats.log_mark import QueueNumbers, TopicDeleted, decode_mark, encode_mark, marks_of


@pytest.mark.parametrize("mark", [TopicDeleted("größe"), QueueNumbers({("t", 0): 5, ("t", 12): 1 << 40, ("u", 0): 0})])
def test_a_mark_is_read_as_it_was_written(mark: TopicDeleted | QueueNumbers) -> None:
    assert decode_mark(encode_mark(mark)) == mark
    assert decode_mark(memoryview(encode_mark(mark))) == mark


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff", b"[]", b"7", b"{}", b'{"kind":"later"}', b'{"kind":"topic-deleted","topic":7}',
        b'{"kind":"queue-numbers","queues":{"t":{"x":1}}}', b'{"kind":"queue-numbers","queues":{"t":{"0":-1}}}',
        b'{"kind":"queue-numbers","queues":[]}',
    ],
)  # fmt: skip
def test_anything_else_is_no_mark(body: bytes) -> None:
    assert decode_mark(body) is None


def test_many_queues_are_spread_over_marks_of_bounded_size() -> None:
    numbers = {(f"topic-{n}", n % 3): n for n in range(1000)}
    marks = list(marks_of(numbers.items(), 2000))
    assert len(marks) > 10
    assert max(len(encode_mark(mark)) for mark in marks) < 2200
    assert {key: number for mark in marks for key, number in mark.numbers.items()} == numbers
    assert list(marks_of([])) == []
