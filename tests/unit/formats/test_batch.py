"""Batches: the elements of a body."""

import pytest

from tandemq.errors import CorruptRecord
from tandemq.formats.batch import encode_batch, parse_batch, split_batch


def test_batches_round_trip_and_refuse_what_does_not_add_up() -> None:
    elements = [(1, b"one", b"A\x01b\x02"), (0, b"", b""), (-7, b"x" * 500, b"")]
    body = encode_batch(elements)
    assert [(flag, bytes(b), bytes(p)) for flag, b, p in split_batch(body)] == elements
    assert split_batch(b"") == []
    for size in range(1, len(body)):
        if size not in (len(body), 22 + 3 + 4, 22 + 3 + 4 + 22):
            with pytest.raises(CorruptRecord):
                split_batch(body[:size])


def test_an_empty_batch_has_no_messages() -> None:
    assert len(parse_batch(b"")) == 0
