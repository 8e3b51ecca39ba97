"""A lone send's ack, and after it the next send, are asked for without sleeping, for a bounded time, and only then."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.replication.waiters import TellingQueue

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Head
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue, PutStatus
from tandemq.replication.hands import StoreHands
from tandemq.replication.master import MasterShell
from tandemq.replication.mastership.core import Phase
from tandemq.replication.slave import SlaveShell
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk

END = 100


class Loop:
    """Keeps what was put off to the next turn."""

    def __init__(self) -> None:
        self.soon: list[Any] = []

    def call_soon(self, callback: Any, *given: Any) -> None:
        self.soon.append(partial(callback, *given))

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
    TellingQueue(acks).acked("slave", 0, 0)
    log, pacing = SimpleNamespace(end=0), SimpleNamespace(appended=lambda: None)
    state: Any = SimpleNamespace(acks=acks, log=log, phase=Phase.OPEN, appended=lambda end: [], pacing=pacing)
    store: Any = SimpleNamespace(appended=END)
    clock, disk = ManualClock(), CrashableDisk()
    hands = StoreHands(store, disk, Path("/store"), clock)
    nothing: Any = lambda *given: None  # noqa: E731
    shell = MasterShell(
        state, hands, clock, on_opened=nothing, on_closed=nothing, on_readable=nothing, on_saved=nothing,
        ack_poll=0.0003,
    )  # fmt: skip
    loop: Any = Loop()
    shell._loop = loop
    return shell


def send(master: MasterShell, told: list[PutStatus]) -> None:
    TellingQueue(master.state.acks).add(END, AckLevel(2), False, 1e9, lambda status, reason: told.append(status))
    master.appended()


def test_it_asks_until_the_ack_is_there(master: MasterShell) -> None:
    """Every turn looks at the sockets; with the ack the loop may sleep again."""
    told: list[PutStatus] = []
    send(master, told)
    loop: Any = master._loop
    assert [loop.turn() for _ in range(5)] == [1] * 5
    TellingQueue(master.state.acks).acked("slave", END, 0)
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


class Slave:
    """A slave's shell with a wire that brings one frame per `frame`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop()
        self._frame: Any = SimpleNamespace(is_lone=False, missing=0, window=0, taken=0, has_pending=False)
        self._state: Any = SimpleNamespace(frame=self._frame, receive=lambda data, now: [])
        store: Any = None
        hands = StoreHands(store, CrashableDisk(), Path("/store"), self.clock)
        nothing: Any = lambda *given: None  # noqa: E731
        self._shell: Any = SlaveShell(
            lambda extended: self._state, hands, self.clock, nothing, reconnect_max=1.0, on_readable=nothing,
            on_saved=nothing, ack_poll=0.001,
        )  # fmt: skip
        self._shell._loop = self.loop
        self._shell._wire = SimpleNamespace(can_splice=True, recv_into=lambda buffer: 1)

    def frame(self, *, lone: bool = True, after: float) -> int:
        """How many callbacks the turn after it has."""
        self.clock.advance(after)
        self._frame.is_lone = lone
        self._shell._read()
        return self.loop.turn()

    def hang_up(self) -> None:
        self._shell._wire = None


@pytest.fixture
def slave(monkeypatch: pytest.MonkeyPatch) -> Slave:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    return Slave()


def test_a_slave_asks_for_the_next_of_sends_that_follow_one_another(slave: Slave) -> None:
    """For its time after each, and then it sleeps."""
    assert slave.frame(after=1.0) == 0, "one send alone tells nothing of a next one"
    assert slave.frame(after=0.0005) == 1
    assert [slave.loop.turn() for _ in range(5)] == [1] * 5
    slave.clock.advance(0.002)
    assert [slave.loop.turn(), slave.loop.turn()] == [1, 0]


@pytest.mark.parametrize("frame", [{"lone": True, "after": 0.0015}, {"lone": False, "after": 0.0005}])
def test_a_slave_sleeps_between_sends_that_come_slowly_or_together(slave: Slave, frame: dict[str, Any]) -> None:
    assert [slave.frame(**frame) for _ in range(5)] == [0] * 5


def test_a_slave_without_a_session_sleeps(slave: Slave) -> None:
    slave.frame(after=1.0)
    assert slave.frame(after=0.0005) == 1
    slave.hang_up()
    assert [slave.loop.turn(), slave.loop.turn()] == [1, 0]


def test_one_processor_is_never_kept_from_the_other_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    assert [Slave().frame(after=0.0001) for _ in range(3)] == [0] * 3


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("lone", [False, True])
def test_a_frame_says_whether_a_single_send_waits(flush: bool, lone: bool) -> None:
    [head] = ha.SessionReader().feed(ha.encode_data_header(7, 0, 0, b"bytes", flush, lone))
    assert isinstance(head, Head)
    assert (head.flush, head.lone) == (flush, lone)
