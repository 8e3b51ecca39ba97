"""Reads the text of a table's file together with its journal of changes (`formats/table_files.py`)."""

import binascii
from typing import Any

from tandemq.codec import fastjson
from tandemq.errors import MalformedBody
from tandemq.formats.table_files import Replayed, replay


def table_of(text: bytes, journal: bytes) -> tuple[dict[str, Any], Replayed]:
    """Returns the table as it is after the journal's changes, and what the journal had to say; raises CodecError."""
    table = fastjson.loads(text)
    if not isinstance(table, dict):
        raise MalformedBody(f"a JSON object was expected, got a {type(table).__name__}")
    return table, replay(table, binascii.crc32(text), journal) if journal else Replayed(0, 0)
