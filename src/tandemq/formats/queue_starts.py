"""`queue-starts`: what a store's queues look like at the first offset of its log. Ours; small; replaced whole.

    {"content": {"offset": F, "idle": {"T": {"0": 100}}, "begin": {"T": {"1": 300000}}, "fileless": {…}},
     "crc": CRC-32 of the content}

`idle` has the next number of each queue of which the log holds no message at or above F: from it and the log all queues
can be built anew. `begin` has the first entry of the first file of each queue whose earlier files were deleted: a queue
whose files begin later has lost some. Both are saved before the files they speak of are deleted. `fileless` has the
next number of queues that were built anew and have no message yet, as of the checkpoint that is written after it.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from tandemq.formats.crc import crc32
from tandemq.formats.log_mark import QueueKey, by_topic, from_topics

_TABLES = ("idle", "begin", "fileless")


class _Sealed(msgspec.Struct):
    content: msgspec.Raw
    crc: int


@dataclass(frozen=True, slots=True)
class QueueStarts:
    """The queues at the first offset of the log."""

    offset: int = 0
    idle: dict[QueueKey, int] = field(default_factory=dict)
    begin: dict[QueueKey, int] = field(default_factory=dict)
    fileless: dict[QueueKey, int] = field(default_factory=dict)


def encode_starts(starts: QueueStarts) -> bytes:
    """Returns the content of the file."""
    content = {"offset": starts.offset} | {name: by_topic(getattr(starts, name)) for name in _TABLES}
    text = msgspec.json.encode(content)
    return msgspec.json.encode(_Sealed(msgspec.Raw(text), crc32(text)))


def decode_starts(data: bytes) -> QueueStarts | None:
    """Returns what the file says, None if it is damaged or no such file."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if crc32(bytes(sealed.content)) != sealed.crc:
            return None
        content: Any = msgspec.json.decode(bytes(sealed.content))
        return QueueStarts(int(content["offset"]), *(from_topics(content[name]) for name in _TABLES))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None
