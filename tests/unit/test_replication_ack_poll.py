"""The master asks for a lone send's ack without sleeping, for a bounded time, and only then."""

from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.replication.acks import TWO_COPIES, AckQueue, PutStatus
from tandemq.replication.master import MasterShell
from tandemq.replication.master_state import Phase
from tandemq.testing.clock import ManualClock

END = 100


class Loop:
    """Keeps what was put off to the next turn."""

    def __init__(self) -> None:
        self.soon: list[Any] = []

    def call_soon(self, callback: Any) -> None:
        self.soon.append(callback)

    def turn(self) -> int:
        """One turn; how many callbacks it had."""
        due, self.soon = self.soon, []
        for callback in due:
            callback()
        return len(due)


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> MasterShell:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    acks = AckQueue(group_size=2)
    acks.acked("slave", 0, 0)
    log = SimpleNamespace(end=0)
    state: Any = SimpleNamespace(acks=acks, log=log, phase=Phase.OPEN, appended=lambda end: [], spares=lambda: ())
    hands: Any = SimpleNamespace(store=SimpleNamespace(appended=END))
    nothing: Any = lambda *given: None  # noqa: E731
    shell = MasterShell(
        state, hands, ManualClock(), on_opened=nothing, on_closed=nothing, on_readable=nothing, on_saved=nothing,
        ack_poll=0.0003,
    )  # fmt: skip
    loop: Any = Loop()
    shell._loop = loop
    return shell


def send(master: MasterShell, told: list[PutStatus]) -> None:
    master.state.acks.add(END, TWO_COPIES, False, 1e9, lambda status, reason: told.append(status))
    master.appended()


def test_it_asks_until_the_ack_is_there(master: MasterShell) -> None:
    """Every turn looks at the sockets; with the ack the loop may sleep again."""
    told: list[PutStatus] = []
    send(master, told)
    loop: Any = master._loop
    assert [loop.turn() for _ in range(5)] == [1] * 5
    master.state.acks.acked("slave", END, 0)
    assert [loop.turn(), loop.turn()] == [1, 0]
    assert told == [PutStatus.PUT_OK]


def test_it_gives_up_after_its_time(master: MasterShell) -> None:
    """A slave that is slow is slept for."""
    send(master, [])
    clock: Any = master._clock
    clock.advance(0.001)
    loop: Any = master._loop
    assert [loop.turn(), loop.turn()] == [1, 0]


def test_many_sends_are_not_polled_for(master: MasterShell) -> None:
    """Then the loop hardly sleeps, and the slave needs the processor."""
    send(master, [])
    send(master, [])
    loop: Any = master._loop
    assert [loop.turn(), loop.turn()] == [1, 0]
