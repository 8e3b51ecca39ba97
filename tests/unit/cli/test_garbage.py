"""What survives a full collection is not examined again, until much has been set aside."""

import gc
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


def test_everything_is_looked_at_again_when_much_was_set_aside(
    long_lived: LongLived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "SET_ASIDE_MIN", 0)
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
    kept: list[list[int]] = [[] for _ in range(2 * gc.get_freeze_count() + 1)]
    gc.collect()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert freed
    assert gc.get_freeze_count() > len(kept)
