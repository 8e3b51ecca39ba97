"""Slices of the log taken apart into records."""

from tests.unit.store.stores import opened, put

from tandemq.broker.record_slices import messages_of, split_records


def test_neighbours_that_share_a_slice_come_apart() -> None:
    store = opened()
    offsets = [put(store, bytes([number]) * number) for number in range(1, 6)]
    ends = [*offsets[1:], store.appended]
    whole = store.slice(0, offsets[3])
    last = store.slice(offsets[3], store.appended - offsets[3])
    parts = split_records([whole, last])
    assert [bytes(part) for part in parts] == [
        bytes(store.slice(start, stop - start)) for start, stop in zip(offsets, ends, strict=True)
    ]
    assert [message.body for message in messages_of([whole, last])] == [bytes([n]) * n for n in range(1, 6)]


def test_no_slice_is_no_record() -> None:
    assert split_records([]) == []
    assert list(messages_of([memoryview(b"")])) == []
