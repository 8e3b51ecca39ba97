"""The guard in front of writes: each reason shuts it, only a full disk opens it again."""

from pathlib import Path

import pytest

from tandemq.errors import DiskFull, LogPoisoned, StoreError
from tandemq.store.write_gate import WriteGate


def test_a_full_disk_shuts_it_until_there_is_room() -> None:
    gate = WriteGate(Path("/store"), False)
    assert (gate.is_shut, gate.health.writable) == (False, True)
    gate.note_full(DiskFull("no room"))
    assert (gate.is_shut, gate.is_full, gate.health.reason) == (True, True, "no room")
    with pytest.raises(DiskFull, match="no room"):
        gate.refuse()
    gate.check_history()
    gate.set_full("")
    assert gate.health.writable


def test_other_reasons_are_for_good_and_the_worst_is_told() -> None:
    gate = WriteGate(Path("/store"), False)
    gate.close()
    gate.set_full("")
    assert gate.is_shut
    assert gate.is_closed
    with pytest.raises(StoreError, match="/store: no appends, the store is closed"):
        gate.check_history()
    gate.poison(LogPoisoned("fdatasync failed"))
    with pytest.raises(LogPoisoned):
        gate.refuse()
    assert gate.health.reason == "fdatasync failed"


def test_a_store_opened_for_reading_takes_no_write() -> None:
    gate = WriteGate(Path("/store"), True)
    assert gate.is_shut
    with pytest.raises(StoreError, match="read-only"):
        gate.refuse()
