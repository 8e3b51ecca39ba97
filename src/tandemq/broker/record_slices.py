"""Takes apart what a read of the store returns, where neighbours in the log share one slice."""

from collections.abc import Iterable, Iterator

from tandemq.formats.record import parse_record, walk
from tandemq.model.message import StoredMessage


def split_records(slices: Iterable[memoryview]) -> list[memoryview]:
    """Returns one view for each record, in order."""
    return [part[start : start + size] for part in slices for start, size, _ in walk(part, 0, len(part))]


def messages_of(slices: Iterable[memoryview]) -> Iterator[StoredMessage]:
    """Yields every record, decoded."""
    for part in slices:
        for start, size, _ in walk(part, 0, len(part)):
            yield parse_record(part, start, start + size)
