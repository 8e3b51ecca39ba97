"""What the store answers: places, reads by queue offset, health and status, as small frozen values."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tandemq.store.recovery import Recovered


class Appended(NamedTuple):
    """Where a message went."""

    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp: int


class AppendedBatch(NamedTuple):
    """Where the messages of a batch went."""

    physical_offsets: list[int]
    end: int
    """Of the last record."""
    queue_offset: int
    """Of the first message; the others follow."""
    store_timestamp: int


class GetStatus(Enum):
    """What a read by queue offset found (GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(NamedTuple):
    status: GetStatus
    slices: list[memoryview]
    """The records in order; neighbours in the log share a slice."""
    next_offset: int
    min_offset: int
    max_offset: int
    count: int  # type: ignore[assignment]  # the name is the contract; tuple.count is not missed
    last_physical_offset: int
    """End of the last record that was read, for the advice to read from a slave; 0 if none."""
    first_physical_offset: int = 0
    """Start of the first record returned: with the end, which part of the log the answer takes; 0 if none."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether appends are accepted, and why not."""

    writable: bool
    reason: str = ""
    is_full: bool = False
    """Whether a full disk is the reason: writing resumes by itself when there is room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """A snapshot for metrics, logs and people."""

    root: str
    first_offset: int
    dispatched: int
    readable_limit: int
    flushed: int
    appended: int
    segments: int
    queues: int
    index_files: int
    disk_used_ratio: float
    writable: bool
    reason: str
    recovered: Recovered | None
    skipped_records: int
