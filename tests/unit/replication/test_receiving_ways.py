"""By which way the next bytes are received."""

from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.replication.receiving_ways import (
    DIRECT_SIZE_MIN,
    QUICK,
    RECEIVE_CHUNK,
    Read,
    Way,
    next_read,
    spills,
    worth_waking,
)

MIB = 1 << 20


def frame(window: int = 0, *, taken: int = 0, unsummed: int = 0, missing: int = 0, pending: bool = False) -> Any:
    return SimpleNamespace(window=window, taken=taken, unsummed=unsummed, missing=missing, has_pending=pending)


@pytest.mark.parametrize(
    ("arriving", "splice_max", "read"),
    [
        (frame(), MIB, Read(Way.BUFFER)),
        (frame(DIRECT_SIZE_MIN - 1), MIB, Read(Way.BUFFER)),
        (frame(DIRECT_SIZE_MIN), MIB, Read(Way.WINDOW, DIRECT_SIZE_MIN)),
        (frame(10, taken=MIB), MIB, Read(Way.WINDOW, 10)),
        (frame(4 * MIB), MIB, Read(Way.WINDOW, RECEIVE_CHUNK)),
        (frame(4 * MIB, unsummed=3 * MIB), MIB, Read(Way.SPLICE, MIB)),
        (frame(4 * MIB, unsummed=3 * MIB), 0, Read(Way.WINDOW, RECEIVE_CHUNK)),
        (frame(4 * MIB, unsummed=DIRECT_SIZE_MIN - 1), MIB, Read(Way.WINDOW, RECEIVE_CHUNK)),
    ],
    ids=["nothing", "small", "large", "end of a large one", "chunk", "splice", "TLS", "too little to splice"],
)
def test_the_way_follows_from_what_is_missing(arriving: Any, splice_max: int, read: Read) -> None:
    assert next_read(arriving, splice_max) == read


def test_the_beginning_of_a_large_frame_spills_into_the_log() -> None:
    assert spills(frame(missing=DIRECT_SIZE_MIN, pending=True))
    assert not spills(frame(missing=DIRECT_SIZE_MIN - 1, pending=True))
    assert not spills(frame(missing=DIRECT_SIZE_MIN))


def test_bulk_is_waited_for_only_while_it_comes_quickly() -> None:
    assert worth_waking(MIB, QUICK / 2) == MIB
    assert worth_waking(MIB, QUICK) == 0
    assert worth_waking(DIRECT_SIZE_MIN - 1, 0.0) == 0
