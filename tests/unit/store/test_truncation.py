"""The intent file of a cut: whole or not there, whatever a crash did to it."""

from pathlib import Path

import pytest

from tandemq.formats.layout import TRUNCATION
from tandemq.sim.disk import CrashableDisk, PowerCut
from tandemq.store.truncation import Truncation, announce, finish, pending

ROOT = Path("/store")


def store_disk() -> CrashableDisk:
    disk = CrashableDisk()
    disk.make_directory(ROOT)
    return disk


@pytest.mark.parametrize("truncation", [Truncation(0), Truncation(1 << 50), Truncation(4096, reset=True)])
def test_what_is_announced_is_pending_until_it_is_finished(truncation: Truncation) -> None:
    disk = store_disk()
    assert pending(disk, ROOT) is None
    announce(disk, ROOT, truncation)
    assert pending(disk.after_crash(), ROOT) == truncation
    finish(disk, ROOT)
    assert pending(disk, ROOT) is None
    assert pending(disk.after_crash(), ROOT) is None


def test_a_power_cut_while_announcing_leaves_the_intent_before_or_after() -> None:
    steps = 0
    while True:
        disk = store_disk()
        announce(disk, ROOT, Truncation(1))
        disk.crash_at = len(disk.steps) + steps
        try:
            announce(disk, ROOT, Truncation(2))
        except PowerCut:
            assert pending(disk.after_crash(), ROOT) in (Truncation(1), Truncation(2))
            steps += 1
            continue
        assert pending(disk.after_crash(), ROOT) == Truncation(2)
        break
    assert steps > 2


def test_a_damaged_or_foreign_file_announces_nothing() -> None:
    disk = store_disk()
    announce(disk, ROOT, Truncation(77))
    whole = disk.read_file(ROOT / TRUNCATION)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        disk.replace_file(ROOT / TRUNCATION, bytes(damaged))
        assert pending(disk, ROOT) is None, position
    disk.replace_file(ROOT / TRUNCATION, whole[:-1])
    assert pending(disk, ROOT) is None
