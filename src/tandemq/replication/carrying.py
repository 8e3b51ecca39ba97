"""Carries out what the state machines decide: one function for production's shells and for the simulator.

Each decision is finished before the next begins.  One that fails, because of the disk, stays at the head of what is to
be done, and none after it is carried out: the order is what makes the promises true.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from tandemq.clock import Clock
from tandemq.replication.acks import AckQueue, Complete
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.decisions import (
    Append,
    Close,
    Commit,
    Confirm,
    Decision,
    Discard,
    FlushSoon,
    Note,
    Opened,
    Prepare,
    Propose,
    Reset,
    Save,
    Send,
    SteppedDown,
    Truncate,
)
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.hands import StoreHands
from tandemq.replication.master_state import MasterState
from tandemq.replication.slave_state import SlaveState

Machine = MasterState | SlaveState | ClassicSlaveState
More = Iterable[Decision] | None
"""What a machine decides when it is told that a decision was carried out."""


class Outside(Protocol):
    """What a decision reaches besides the store: a shell's sockets and its broker, or a simulated network."""

    def send(self, send: Send) -> None:
        """Sends a frame on its session, if that still has a connection."""
        ...

    def close(self, close: Close) -> None:
        """Ends a connection, after what was sent on it."""
        ...

    def confirm(self, confirm: Confirm) -> None:
        """Shows readers everything below the offset."""
        ...

    def flush_soon(self, decision: FlushSoon) -> None:
        """Has the log synced now."""
        ...

    def note(self, note: Note) -> None:
        """Writes a line to the log, and counts it."""
        ...

    def saved(self, record: ReplicaRecord) -> None:
        """Learns that the record is on disk."""
        ...


class MasterOutside(Outside, Protocol):
    """What a master's decisions reach besides that."""

    def opened(self, opened: Opened) -> None:
        """Lets the broker write."""
        ...

    def stepped_down(self, ended: SteppedDown) -> None:
        """Lets the broker write no more."""
        ...

    def propose(self, proposal: Propose) -> None:
        """Asks the coordinator for a change of the register."""
        ...


class Carrier:
    """Carries out the decisions of one node's machine."""

    def __init__(
        self,
        hands: StoreHands,
        outside: Outside,
        clock: Clock,
        machine: Callable[[], Machine],
        *,
        acks: AckQueue | None = None,
        reign: MasterOutside | None = None,
    ) -> None:
        """`machine` is asked each time: a slave has a new one for every session.  A master has `acks` and `reign`."""
        self._hands, self._outside, self._clock, self._machine = hands, outside, clock, machine
        how: dict[type, Callable[[Any], More]] = {
            Append: hands.append,
            Commit: hands.commit,
            Discard: hands.discard,
            Truncate: hands.truncate,
            Reset: hands.reset,
            Save: self._save,
            Send: outside.send,
            Close: outside.close,
            Confirm: outside.confirm,
            FlushSoon: outside.flush_soon,
            Note: outside.note,
        }
        if acks is not None:
            how[Complete] = acks.tell
        if reign is not None:
            how |= {
                Prepare: self._prepare,
                Opened: reign.opened,
                SteppedDown: reign.stepped_down,
                Propose: reign.propose,
            }
        self._how = how
        self.is_over = False
        """The process has ended meanwhile: nothing more is carried out.  Only a simulated one can end like that."""

    def carry_out(self, todo: deque[Decision]) -> None:
        """Carries out everything in `todo` and what comes of it; what could not be done is still there afterwards."""
        how = self._how
        while todo and not self.is_over:
            decision = todo[0]
            more = how[type(decision)](decision)
            todo.popleft()
            if more:
                todo.extend(more)

    def _save(self, save: Save) -> More:
        self._hands.save(save)
        self._outside.saved(save.record)
        return self._machine().saved(save.record, self._clock.monotonic())

    def _prepare(self, prepare: Prepare) -> More:
        machine = self._machine()
        assert isinstance(machine, MasterState)
        return machine.prepared(self._hands.prepare(), self._clock.monotonic())


def fail_undone(acks: AckQueue, undone: Iterable[Decision], reason: str) -> None:
    """Tells those who wait for a Complete that will not be carried out."""
    for decision in undone:
        if isinstance(decision, Complete):
            acks.refuse(decision, reason)
