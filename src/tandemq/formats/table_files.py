"""A table's file and its journal of changes, below `config/` of a store.

The table's file (topics.json, consumerOffset.json, …) has RocketMQ's shape: an object whose large members are maps from
a key to an entry. Writing it costs what the whole table costs, so a large table that changes has a journal beside it
(topics.journal, …), one line for each group of changes:

    crc32 of the rest of the line, 8 hex digits   blank   JSON object   line feed

    first line    {"base": crc32 of the table's file, "depth": levels of maps that changes merge into}
    other lines   the changed part of the table: new entries by their keys, null for an entry that is gone

A journal belongs to the file whose checksum its first line names. Beside any other file (written anew since, restored
from a backup, written by RocketMQ) it says nothing and is ignored. A last line that is cut or damaged was never
acknowledged and does not count; damage further up is an error, because acknowledged changes come after it.
"""

import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tandemq.errors import CodecError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_CRC_SIZE = 9
"""Eight digits and the blank."""
PIECE_ENTRIES = 64
"""Entries of one piece of a file's text: some tens of microseconds."""


class CorruptTable(CodecError):
    """A line of a journal is damaged, and lines after it are not."""


class Replayed(NamedTuple):
    """What a journal had to say."""

    changes: int
    """Lines applied."""
    size: int
    """Bytes up to the end of the last whole line; what follows was cut by a crash. 0: it belongs to another file."""


def file_pieces(members: Mapping[str, Any], maps: Iterable[tuple[str, Iterable[tuple[str, Any]]]]) -> Iterator[bytes]:
    """Yields the text of a table's file: small members, then maps with an entry a line, as people and diffs like it.

    Integer keys come quoted, which upstream reads as well.
    """
    yield b"{"
    separator = b"\n"
    for name, value in members.items():
        yield separator + _encode(name) + b":" + _encode(value)
        separator = b",\n"
    for name, entries in maps:
        yield separator + _encode(name) + b":{"
        yield from _entry_pieces(entries)
        yield b"}"
        separator = b",\n"
    yield b"\n}\n"


def _entry_pieces(entries: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    lines: list[bytes] = []
    separator = b"\n"
    for key, value in entries:
        lines.append(separator + _encode(key) + b":" + _encode(value))
        separator = b",\n"
        if len(lines) == PIECE_ENTRIES:
            yield b"".join(lines)
            lines.clear()
    yield b"".join(lines)


def first_line(base_crc: int, depth: int) -> bytes:
    """Returns the line a journal begins with."""
    return change_line({"base": base_crc, "depth": depth})


def change_line(change: Mapping[str, Any]) -> bytes:
    """Returns the line of a change."""
    text = _encode(change)
    return b"%08x %b\n" % (binascii.crc32(text), text)


def replay(table: dict[str, Any], base_crc: int, journal: bytes | memoryview) -> Replayed:
    """Brings a table read from its file up to date; raises CorruptTable for damage that hides later changes."""
    lines = bytes(journal).split(b"\n")
    lines.pop()  # nothing after a line feed, or what a crash left of a line
    depth, size, applied = 0, 0, 0
    for number, line in enumerate(lines):
        change = _change_of(line)
        if change is None:
            if number + 1 < len(lines):
                raise CorruptTable(f"line {number + 1} of {len(lines)} is damaged, at byte {size}")
            break
        if number == 0:
            if change.get("base") != base_crc:
                return Replayed(0, 0)
            depth = change.get("depth", 1)
            if not isinstance(depth, int):
                raise CorruptTable(f"line 1 of {len(lines)} is damaged: its depth is no number")
        else:
            merge(table, change, depth)
            applied += 1
        size += len(line) + 1
    return Replayed(applied, size)


def _change_of(line: bytes) -> dict[str, Any] | None:
    text = line[_CRC_SIZE:]
    if line[:_CRC_SIZE] != b"%08x " % binascii.crc32(text):
        return None
    try:
        found = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def merge(table: dict[Any, Any], change: Mapping[str, Any], depth: int) -> None:
    """Takes over the entries of a change; maps merge down to `depth` levels, what lies deeper is replaced."""
    for key, value in change.items():
        if value is None:
            table.pop(key, None)
        elif depth > 1 and isinstance(value, Mapping) and isinstance(held := table.get(key), dict):
            merge(held, value, depth - 1)
        else:
            table[key] = value
