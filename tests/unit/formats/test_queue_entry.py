"""The consume-queue entry, by the example of the format's reference."""

import numpy as np

from tandemq.formats.queue_entry import COLUMNS, ENTRY, ENTRY_SIZE, FILLER, FILLER_SIZE, file_name, first_index


def test_the_entry_of_the_reference_record() -> None:
    """Offset 1024, size 104, tag A: as RocketMQ writes it, and the same through numpy."""
    data = bytes.fromhex("0000000000000400 00000068 0000000000000041")
    assert ENTRY.pack(1024, 104, 65) == data
    assert len(data) == ENTRY_SIZE
    assert np.frombuffer(data, dtype=list(COLUMNS)).tolist() == [(1024, 104, 65)]


def test_a_filler_has_no_place_in_the_log() -> None:
    assert ENTRY.unpack(FILLER) == (0, FILLER_SIZE, 0)


def test_files_are_named_after_the_byte_of_their_first_entry() -> None:
    assert file_name(300_000) == "00000000000006000000"
    assert first_index(file_name(300_000)) == 300_000
