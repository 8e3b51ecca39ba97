"""What survives a full collection is not examined again, until much has been set aside."""

import gc
import mmap
from collections.abc import Iterator

import pytest

from tandemq.cli import garbage
from tandemq.cli.garbage import LongLived


@pytest.fixture
def long_lived() -> Iterator[LongLived]:
    gc.disable()  # no collection but those that the tests ask for
    one = LongLived()
    one.begin()
    yield one
    one.end()
    gc.enable()
    gc.collect()


def test_survivors_are_set_aside(long_lived: LongLived) -> None:
    before = gc.get_freeze_count()
    kept: list[list[int]] = [[] for _ in range(10_000)]
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert len(gc.get_objects()) < 10_000  # what the next collection examines


def test_everything_is_looked_at_again_when_much_memory_is_in_use(
    long_lived: LongLived, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[int] = []

    class Noticed:
        def __del__(self) -> None:
            freed.append(1)

    one = Noticed()
    one.itself = one  # type: ignore[attr-defined]
    gc.collect()
    del one
    gc.collect()
    assert not freed  # a cycle that was set aside
    grown = 2 * long_lived._after_last_look + garbage.GROWN_MIN + 1
    monkeypatch.setattr(garbage, "memory_in_use", lambda: grown)
    gc.collect()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert freed
    assert gc.get_freeze_count() > 0
    gc.collect()
    assert gc.get_freeze_count() > 0, "that much is usual now"


def test_the_memory_of_this_process_is_known() -> None:
    size, before = 64 << 20, garbage.memory_in_use()
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:  # not from what was freed before
        held[:] = b"x" * size
        assert garbage.memory_in_use() > before + size // 2


def test_full_collections_come_when_little_is_new() -> None:
    before = gc.get_threshold()
    one = LongLived()
    one.begin()
    assert gc.get_threshold()[2] < 10
    one.end()
    assert gc.get_threshold() == before
