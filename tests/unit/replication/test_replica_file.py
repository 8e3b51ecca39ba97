"""What a node remembers about itself: written whole, read whole, and never guessed."""

from pathlib import Path

import pytest

from tandemq.codec.ha_register import Member, Register
from tandemq.errors import CorruptLog
from tandemq.replication.epochs import Epoch, History, Promise, ReplicaRecord
from tandemq.replication.replica_file import FILE_NAME, decode, encode, load, save
from tandemq.sim.disk import CrashableDisk

ROOT = Path("/store")
RECORD = ReplicaRecord(
    replica="10.0.0.1:10911#a",
    history=History((Epoch(1, "x", 0), Epoch(4, "y", 700))),
    promise=Promise(5, "z"),
    in_sync=frozenset({"10.0.0.1:10911#a", "10.0.0.2:10911#b"}),
    confirmed=650,
    reigning=True,
    before=Promise(4, "y"),
    register=Register(group_id="g", epoch=4, epoch_id="y", members=(Member("10.0.0.1:10911#a", "10.0.0.1:10911", 1),)),
    lacks=(0, 4096),
    copying_to=12,
)


def made() -> CrashableDisk:
    disk = CrashableDisk()
    disk.make_directory(ROOT)
    return disk


def test_everything_comes_back() -> None:
    disk = made()
    assert load(disk, ROOT) is None
    save(disk, ROOT, RECORD)
    assert load(disk, ROOT) == RECORD


def test_a_record_survives_a_power_cut_as_soon_as_it_is_saved() -> None:
    disk = made()
    save(disk, ROOT, RECORD)
    assert load(disk.after_crash(), ROOT) == RECORD


@pytest.mark.parametrize("where", [2, 40, -4])
def test_one_wrong_byte_is_a_damaged_record_and_the_file_is_named(where: int) -> None:
    data = bytearray(encode(RECORD))
    data[where] ^= 1
    with pytest.raises(CorruptLog, match=r"replica\.json is damaged"):
        decode(bytes(data), str(ROOT / FILE_NAME))


def test_a_record_cut_short_is_damaged() -> None:
    for size in (0, 1, len(encode(RECORD)) - 1):
        with pytest.raises(CorruptLog):
            decode(encode(RECORD)[:size], FILE_NAME)
