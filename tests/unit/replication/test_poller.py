"""For how long the loop is kept awake: as long as it usually takes, three times over, and no longer than is allowed."""

from collections.abc import Callable

import pytest

from tandemq.replication import poller
from tandemq.replication.poller import LIMIT_MIN, LONGER, Poller
from tandemq.sim.clock import ManualClock

ALLOWED = 0.001


class Turns:
    """A loop whose turns are taken by hand, a microsecond each."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.waiting: list[tuple[Callable[..., None], tuple[object, ...]]] = []

    def call_soon(self, work: Callable[..., None], *arguments: object) -> None:
        self.waiting.append((work, arguments))

    def take(self) -> bool:
        """Takes a turn; returns whether there was one to take: an idle loop sleeps."""
        self._clock.advance(1e-6)
        now, self.waiting = self.waiting, []
        for work, arguments in now:
            work(*arguments)
        return bool(now)

    def until_asleep(self) -> int:
        count = 0
        while self.take():
            count += 1
        return count


@pytest.fixture
def several_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller.os, "sched_getaffinity", lambda _: {0, 1})


class Story:
    """A send after the other, each of which is waited for so long."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Turns(self.clock)
        self.waits = False
        self.poller = Poller(self.clock, ALLOWED, lambda: self.waits)

    def send(self, seconds: float) -> None:
        self.waits = True
        self.poller.begin(self.loop)  # type: ignore[arg-type]
        for _ in range(round(seconds * 1e6)):
            self.loop.take()
        self.waits = False
        self.loop.until_asleep()


@pytest.mark.usefixtures("several_processors")
def test_it_polls_for_as_long_as_it_may_until_it_knows_better() -> None:
    story = Story()
    story.waits = True
    story.poller.begin(story.loop)  # type: ignore[arg-type]
    assert story.loop.until_asleep() == pytest.approx(ALLOWED * 1e6, abs=3)


@pytest.mark.usefixtures("several_processors")
def test_it_polls_for_three_times_what_it_takes() -> None:
    story = Story()
    for _ in range(100):
        story.send(0.00005)
    assert story.poller.limit == pytest.approx(LONGER * 0.00005, rel=0.1)
    story.waits = True
    story.poller.begin(story.loop)  # type: ignore[arg-type]
    assert story.loop.until_asleep() < 200, "whoever is waited for may wait for this processor"


@pytest.mark.usefixtures("several_processors")
def test_it_learns_of_a_longer_way() -> None:
    story = Story()
    for _ in range(100):
        story.send(0.00002)
    assert story.poller.limit == LIMIT_MIN
    for _ in range(60):
        story.send(0.0003)
    assert story.poller.limit > 0.0003


@pytest.mark.usefixtures("several_processors")
def test_what_follows_while_it_polls_tells_how_long_it_takes() -> None:
    """A slave polls for the next send."""
    story = Story()
    story.waits = True
    for _ in range(100):
        story.poller.begin(story.loop)  # type: ignore[arg-type]
        for _ in range(80):
            story.loop.take()
    assert story.poller.limit == pytest.approx(LONGER * 0.00008, rel=0.1)


@pytest.mark.usefixtures("several_processors")
def test_it_takes_one_turn_at_a_time_and_none_once_nobody_waits() -> None:
    story = Story()
    story.waits = True
    story.poller.begin(story.loop)  # type: ignore[arg-type]
    story.poller.begin(story.loop)  # type: ignore[arg-type]
    assert len(story.loop.waiting) == 1
    story.waits = False
    assert story.loop.take()
    assert story.loop.waiting == []


def test_a_single_processor_is_left_to_whoever_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller.os, "sched_getaffinity", lambda _: {0})
    story = Story()
    story.waits = True
    story.poller.begin(story.loop)  # type: ignore[arg-type]
    assert not story.loop.take()
