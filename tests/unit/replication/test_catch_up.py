"""A slave that catches up: wakes up for bulk, and lets readers wait while the master's history pours in."""

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tandemq.codec.ha_classic import Head
from tandemq.replication.decisions import Commit, Confirm, LogEnds
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.hands import StoreHands
from tandemq.replication.receiving_ways import QUICK
from tandemq.replication.showing import BULK_PAUSE, BULK_SIZE_MIN
from tandemq.replication.slave import BACKLOG_MAX, SlaveShell
from tandemq.replication.slave_state import SlaveState
from tandemq.replication.wire import GATHER_SIZE, Wire
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk
from tandemq.testing.waiting import until

BULK = BULK_SIZE_MIN + 1


class CatchingUp:
    """A slave's shell, fed with what its state would decide."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.shown: list[int] = []
        self.state: Any = SimpleNamespace(frame=SimpleNamespace(is_catching_up=True))
        self.store: Any = SimpleNamespace(
            commit_raw=lambda size: None, set_confirmed=self.shown.append, dispatched=0, appended=0
        )
        self.later: list[Any] = []
        hands = StoreHands(self.store, CrashableDisk(), Path("/store"), self.clock)
        nothing: Any = lambda *given: None  # noqa: E731
        self.shell: Any = SlaveShell(
            lambda extended: self.state, hands, self.clock, nothing, reconnect_max=1.0, on_readable=nothing,
            on_saved=nothing,
        )  # fmt: skip
        self.shell._loop = SimpleNamespace(call_later=lambda delay, callback: self.later.append(callback))

    def frame(self, end: int, size: int = BULK) -> None:
        self.shell._act([Commit(size), Confirm(end)])

    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        due, self.later[:] = list(self.later), []
        for callback in due:
            callback()


def test_readers_wait_while_history_pours_in_and_see_all_of_it_at_its_end() -> None:
    slave = CatchingUp()
    for number in range(1, 5):
        slave.frame(number * BULK)
        slave.time_passes(BULK_PAUSE / 2)
    assert slave.shown == []
    slave.state.frame.is_catching_up = False
    slave.frame(5 * BULK)
    assert slave.shown == [5 * BULK]


def test_on_a_slow_link_readers_see_what_came_so_far() -> None:
    slave = CatchingUp()
    slave.frame(BULK)
    slave.time_passes(BULK_PAUSE)
    assert slave.shown == [BULK]


def test_no_more_is_held_back_than_stays_in_memory() -> None:
    slave = CatchingUp()
    slave.frame(BACKLOG_MAX - 1)
    assert slave.shown == []
    slave.frame(BACKLOG_MAX)
    assert slave.shown == [BACKLOG_MAX]


def test_bulk_that_is_not_history_is_shown_at_once() -> None:
    """A live master's large frames, to a slave that has caught up."""
    slave = CatchingUp()
    slave.state.frame.is_catching_up = False
    slave.frame(BULK)
    assert slave.shown == [BULK]


class Splicing:
    """A slave's shell in the middle of a bulk frame; `expected` is what its wire was told last."""

    def __init__(self, left: int) -> None:
        self.clock = ManualClock()
        self.expected = 0
        self._left = left
        self._shell = CatchingUp().shell
        self._shell._clock = self.clock
        now = self.clock.monotonic()
        self._state = SlaveState(
            record=ReplicaRecord("b:1#1"), terms=SlaveTerms("g"), log=LogEnds(0, 0, 0, 1 << 30), new_id=str, now=now
        )
        frames: Any = SimpleNamespace(missing=left, unsummed=left, passed=self._passed)
        self._frame = frame = self._state.frame
        frame.frames, frame._head = frames, Head(0, left)
        self._shell.state = self._state
        self._wire: Any = SimpleNamespace(can_splice=True, receive_to_file=None, expect=self._expect)
        self._shell._wire = self._wire

    def _expect(self, size: int) -> None:
        self.expected = size

    def _passed(self, size: int) -> None:
        self._left -= size
        frames: Any = self._frame.frames
        frames.missing = frames.unsummed = self._left

    def comes(self, size: int, *, after: float) -> int:
        self.clock.advance(after)
        self._shell._store = SimpleNamespace(splice_raw=lambda behind, most, move: size)
        self._shell._read()
        return self.expected


def test_bulk_is_waited_for_while_it_comes_quickly_and_never_more_than_is_sure_to_come() -> None:
    slave = Splicing(left=1000 << 10)
    assert slave.comes(100 << 10, after=0.001) == 900 << 10
    assert slave.comes(300 << 10, after=0.001) == 600 << 10
    assert slave.comes(590 << 10, after=0.001) == 0, "what is left is read with what comes behind it"


def test_on_a_slow_link_every_byte_is_a_sign_of_life() -> None:
    """Else a master that sends little by little would be taken for a silent one."""
    slave = Splicing(left=1000 << 10)
    assert slave.comes(10 << 10, after=0.001) > 0
    assert slave.comes(10 << 10, after=2 * QUICK) == 0


def test_a_wire_wakes_up_for_a_good_part_of_what_is_sure_to_come() -> None:
    """Bytes that are less than expected wait in the socket, and no longer once the expectation is over."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        listener = socket.create_server(("127.0.0.1", 0))
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
        woken: list[int] = []
        nothing: Any = lambda *given: None  # noqa: E731
        wire = Wire(
            loop, ours, on_readable=lambda: woken.append(wire.recv_into(buffer)), on_clear=nothing, on_lost=nothing
        )
        buffer = bytearray(1 << 20)

        async def received(count: int) -> None:
            await until(lambda: sum(woken) >= count, f"{count} bytes from the kernel")

        wire.expect(10 << 20)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == GATHER_SIZE
        wire.expect(1000)
        theirs.sendall(bytes(400))
        theirs.sendall(bytes(600))
        await received(1000)
        assert woken == [1000]
        wire.expect(0)
        theirs.sendall(b"1")
        await received(1001)
        wire.expect(1000)
        theirs.sendall(b"12")
        theirs.close()
        await received(1003)  # the end of the stream wakes it up too
        wire.close()
        listener.close()

    asyncio.run(story())
