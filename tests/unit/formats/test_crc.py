"""The fast CRC-32 gives zlib's numbers, and zlib's own is used where the fast one is missing."""

import importlib
import random
import sys
import zlib

import pytest

from tandemq.formats import crc


def test_every_size_and_every_way_to_hand_it_over_gives_zlibs_number() -> None:
    data = random.Random(1).randbytes(3000)
    for size in range(0, 3000, 7):
        part = memoryview(data)[3 : 3 + size]
        assert crc.crc32(part) == crc.crc32(bytes(part)) == crc.crc32(bytearray(part)) == zlib.crc32(part)
        assert crc.crc32(part[size // 3 :], crc.crc32(part[: size // 3])) == zlib.crc32(part)


def test_without_isal_it_is_zlibs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    try:
        assert importlib.reload(crc).crc32 is zlib.crc32
    finally:
        monkeypatch.undo()
        importlib.reload(crc)
