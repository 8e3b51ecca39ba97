"""Where records begin: lanes and the plain loop find the same places and say why they stopped."""

import mmap
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.made_log import make_log

from tandemq.formats import record_starts as walk_module
from tandemq.formats.record_starts import End, are_records, big_endian, hop, resynchronise, walk


def test_a_large_log_is_walked_by_lanes_to_the_same_positions() -> None:
    """Long enough that the vectorised walk is used; bodies that contain records do not mislead it."""
    inner, _ = make_log(30, 5)
    log, starts = make_log(2500, 6, body=inner[:2000], sys_flag=0)
    found = walk(log, 0, len(log), len(log), base=0)
    assert found.positions.tolist() == starts
    assert found.next == len(log)
    assert walk(log, 0, len(log), len(log), base=None).positions.tolist() == starts


@pytest.mark.parametrize("at", [0, 1, 700_000, 1_000_000])
def test_lanes_stop_where_the_chain_is_broken(at: int) -> None:
    """A damaged size in the middle ends the walk exactly there."""
    log, starts = make_log(4000, 7, sys_flag=0, body=b"x" * 400)
    victim = next(start for start in starts if start >= at)
    damaged = bytearray(log)
    damaged[victim : victim + 4] = b"\xff\xff\xff\xff"
    found = walk(damaged, 0, len(log), len(log), base=0)
    assert found.next == victim
    assert found.positions.tolist() == [start for start in starts if start < victim]
    assert resynchronise(damaged, victim, len(log), len(log), 0) == starts[starts.index(victim) + 1]


@pytest.mark.parametrize("seed", range(12))
def test_lanes_and_the_plain_loop_agree_on_damaged_logs(seed: int) -> None:
    """Sizes of nothing, too small, negative or beyond the end, foreign magics, and logs cut anywhere."""
    log, starts = make_log(1500, 8, sys_flag=0, body=b"x" * 400)
    rng, damaged = random.Random(seed), bytearray(log)
    for victim in rng.sample(starts, rng.randrange(4)):
        at, value = rng.choice(
            (
                (0, 0),
                (0, 7),
                (0, 90),
                (0, 91),
                (0, 0x7FFFFFFF),
                (0, 0x80000000),
                (0, 0xFFFFFFFF),
                (4, 0),
                (4, 0xDAA320FF),
            )
        )
        damaged[victim + at : victim + at + 4] = value.to_bytes(4, "big")
    limit = rng.choice((len(log), len(log) - 1, starts[-1] + 8, starts[-1] + 7, starts[-1] + 1))
    found = walk(damaged, 0, len(log), limit, base=0)
    plain = hop(damaged, 0, limit, limit)
    assert found.positions.tolist() == plain.positions.tolist()
    assert (found.next, found.end) == (plain.next, plain.end)


def test_a_search_for_records_stays_away_from_the_end_of_a_mapped_file(tmp_path: Path) -> None:
    """Debian's Python 3.11.2 dies of a search up to the last byte of whole pages. No record can begin there."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(1 << 20))
    ends: list[int] = []

    class Watched(mmap.mmap):
        def find(self, sub: Any, start: int = 0, end: int = 0) -> int:  # type: ignore[override]
            ends.append(end)
            return super().find(sub, start, end)

    with open(path, "rb") as file, Watched(file.fileno(), 0, access=mmap.ACCESS_READ) as segment:
        assert resynchronise(segment, 0, 1 << 20, 1 << 20, 0) is None
        assert walk(segment, 0, 1 << 20, 1 << 20, base=0).end is End.ZEROS
        assert resynchronise(segment, 0, 50, 50, 0) is None
    assert max(ends) < 1 << 20
    assert min(ends) >= 0


def test_lanes_do_not_run_through_what_was_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last segment of a log is mostly zeros, and every query asks where they begin."""
    log, starts = make_log(1500, 8, sys_flag=0, body=b"x" * 400)
    looks = 0

    class Counted:
        def __init__(self, heads: Any) -> None:
            self.heads = heads

        def __getitem__(self, at: Any) -> Any:
            nonlocal looks
            looks += len(at)
            return self.heads[at]

    monkeypatch.setattr(walk_module, "big_endian", lambda view, kind: Counted(big_endian(view, kind)))
    found = walk(log + bytes(40 << 20), 0, len(log) + (40 << 20), len(log) + (40 << 20), base=0)
    assert (found.positions.tolist(), found.end) == (starts, End.ZEROS)
    assert len(starts) // 2 < looks < 2 * len(starts)


@pytest.mark.parametrize(
    ("tail", "end"),
    [
        (b"\0" * 64, End.ZEROS),
        ((64).to_bytes(4, "big") + bytes.fromhex("CBD43194") + b"?" * 56, End.BLANK),
        (b"garbage garbage!", End.BROKEN),
        (b"\0\0\0", End.CUT),
    ],
)
def test_a_walk_says_why_it_ended(tail: bytes, end: End) -> None:
    """Zeros, a blank, garbage and a cut are told apart."""
    log, starts = make_log(5)
    found = walk(log + tail, 0, len(log) + len(tail), len(log) + len(tail), base=0)
    assert (found.positions.tolist(), found.next, found.end) == (starts, len(log), end)


def test_a_torn_record_is_cut() -> None:
    """The last record misses its last byte."""
    log, starts = make_log(5)
    found = walk(log[:-1], 0, len(log), len(log), base=0)
    assert (found.positions.tolist(), found.next, found.end) == (starts[:-1], starts[-1], End.CUT)


def test_entries_are_held_against_the_log() -> None:
    """Only a place where a record of the stated size begins, and ends inside the buffer, counts."""
    log, starts = make_log(3)
    sizes = np.diff([*starts, len(log)])
    positions = np.array(starts)
    assert are_records(log, positions, sizes).tolist() == [True] * 3
    assert are_records(log, positions + 1, sizes).tolist() == [False] * 3
    assert are_records(log, positions, sizes + 1).tolist() == [False] * 3
    assert are_records(log[:-1], positions, sizes).tolist() == [True, True, False]
    assert are_records(log, np.array([len(log) - 4, -8]), np.array([200, 200])).tolist() == [False, False]
