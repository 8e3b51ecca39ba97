"""The single records in what `MessageStore.get` returns, where neighbours in the log share a slice."""

from collections.abc import Iterable, Iterator

from tandemq.codec.record import parse_record, walk
from tandemq.model.message import StoredMessage


def split(slices: Iterable[memoryview]) -> list[memoryview]:
    """One view a record, in order."""
    return [part[start : start + size] for part in slices for start, size, _ in walk(part, 0, len(part))]


def messages(slices: Iterable[memoryview]) -> Iterator[StoredMessage]:
    """Every record, decoded."""
    for part in slices:
        for start, size, _ in walk(part, 0, len(part)):
            yield parse_record(part, start, start + size)
