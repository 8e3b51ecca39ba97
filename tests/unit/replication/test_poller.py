"""Keeping the loop awake for the short while in which bytes are sure to come."""

from typing import Any

import pytest

from tandemq.replication import poller
from tandemq.replication.poller import Poller
from tandemq.sim.clock import ManualClock


class Loop:
    """Keeps what is to be called in the next turn."""

    def __init__(self) -> None:
        self.soon: list[Any] = []

    def call_soon(self, callback: Any, *arguments: Any) -> None:
        self.soon.append((callback, arguments))

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for callback, arguments in due:
            callback(*arguments)


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller.os, "sched_getaffinity", lambda pid: {0, 1})


def test_it_ends_when_the_time_is_over_and_lasts_longer_when_begun_again() -> None:
    clock, loop = ManualClock(), Loop()
    polls = Poller(clock, 0.001, lambda: True)
    any_loop: Any = loop
    polls.begin(any_loop)
    polls.begin(any_loop)
    assert len(loop.soon) == 1, "one turn at a time"
    clock.advance(0.0006)
    loop.turn()
    polls.begin(any_loop)
    clock.advance(0.0006)
    loop.turn()
    assert len(loop.soon) == 1, "the second begin gave it its whole time again"
    clock.advance(0.0006)
    loop.turn()
    assert loop.soon == []


def test_it_ends_as_soon_as_nobody_waits() -> None:
    clock, loop, wanted = ManualClock(), Loop(), [True]
    polls = Poller(clock, 1.0, lambda: wanted[0])
    any_loop: Any = loop
    polls.begin(any_loop)
    loop.turn()
    assert len(loop.soon) == 1
    wanted[0] = False
    loop.turn()
    assert loop.soon == []


def test_on_a_single_processor_it_never_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller.os, "sched_getaffinity", lambda pid: {0})
    loop: Any = Loop()
    Poller(ManualClock(), 1.0, lambda: True).begin(loop)
    assert loop.soon == []
