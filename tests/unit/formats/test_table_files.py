"""A table's file and the journal of its changes."""

import binascii
import json
from pathlib import Path
from typing import Any

import pytest

from tandemq.formats.layout import journal_path
from tandemq.formats.table_files import (
    PIECE_ENTRIES,
    CorruptTable,
    change_line,
    file_pieces,
    first_line,
    merge,
    replay,
)

TEXT = b'{"table":{"a":{"x":1}}}'
CRC = binascii.crc32(TEXT)


def table() -> dict[str, Any]:
    return {"table": {"a": {"x": 1}}}


def journal(*changes: dict[str, Any], depth: int = 2) -> bytes:
    return first_line(CRC, depth) + b"".join(map(change_line, changes))


def test_the_journal_lies_beside_its_file() -> None:
    assert journal_path(Path("/s/config/topics.json")) == Path("/s/config/topics.journal")


def test_a_file_is_json_with_an_entry_a_line() -> None:
    entries = [(f"k{n}", {"n": n}) for n in range(3 * PIECE_ENTRIES + 1)]
    pieces = list(file_pieces({"version": 7}, [("first", entries), ("second", []), ("third", [("q", {0: 5})])]))
    text = b"".join(pieces)
    assert json.loads(text) == {"version": 7, "first": dict(entries), "second": {}, "third": {"q": {"0": 5}}}
    assert text.count(b"\n") > len(entries)
    assert max(piece.count(b"\n") for piece in pieces) <= PIECE_ENTRIES


def test_changes_come_in_order() -> None:
    """New, different and gone entries; a later line wins."""
    found = table()
    replayed = replay(
        found, CRC, journal({"table": {"b": {"x": 2}}}, {"table": {"a": None, "b": {"y": 3}}, "version": 9})
    )
    assert found == {"table": {"b": {"y": 3}}, "version": 9}
    assert replayed.changes == 2
    assert replayed.size == len(
        journal({"table": {"b": {"x": 2}}}, {"table": {"a": None, "b": {"y": 3}}, "version": 9})
    )


def test_the_depth_says_what_is_merged_and_what_is_replaced() -> None:
    found = table()
    replay(found, CRC, journal({"table": {"a": {"y": 2}}}, depth=3))
    assert found == {"table": {"a": {"x": 1, "y": 2}}}
    replay(found, CRC, journal({"table": {"a": {"x": None}}}, depth=3))
    assert found == {"table": {"a": {"y": 2}}}


def test_the_journal_of_another_file_says_nothing() -> None:
    """The file was written anew, restored from a backup, or written by RocketMQ."""
    found = table()
    assert replay(found, CRC + 1, journal({"table": {"a": None}})).size == 0
    assert found == table()


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_cut_by_a_crash_does_not_count(cut: int) -> None:
    whole = journal({"table": {"b": 1}})
    found = table()
    replayed = replay(found, CRC, (whole + change_line({"table": {"c": 1}}))[:-cut])
    assert found["table"].keys() == {"a", "b"}
    assert replayed.size == len(whole)


def test_damage_that_hides_later_changes_is_an_error() -> None:
    text = bytearray(journal({"table": {"b": 1}}, {"table": {"c": 1}}))
    text[len(journal()) + 12] ^= 1
    with pytest.raises(CorruptTable, match="line 2 of 3"):
        replay(table(), CRC, bytes(text))


def test_an_empty_journal_is_none() -> None:
    assert replay(table(), CRC, b"").size == 0


def test_merging_replaces_what_is_no_map() -> None:
    held: dict[str, Any] = {"a": 1}
    merge(held, {"a": {"b": 2}, "c": {"d": 3}}, 3)
    assert held == {"a": {"b": 2}, "c": {"d": 3}}
