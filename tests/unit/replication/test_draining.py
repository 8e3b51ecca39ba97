"""A master hands over when all who follow it have everything, and says who has not."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.errors import ReplicationError
from tandemq.replication.node import ReplicaNode
from tandemq.replication.session import Session, SessionState
from tandemq.sim.clock import ManualClock


def node(*received: int) -> Any:
    sessions = {}
    for number, offset in enumerate(received):
        session = Session(number, "10.0.0.9:1", 0.0, 0.0, 0.0, SessionState.IN_SYNC, replica=f"n{number}")
        session.received = offset
        sessions[number] = session
    one: Any = ReplicaNode.__new__(ReplicaNode)
    one._clock, one._store = ManualClock(), SimpleNamespace(appended=100)
    one.master = SimpleNamespace(state=SimpleNamespace(sessions=sessions))
    return one


def test_it_waits_for_every_slave_that_follows() -> None:
    asyncio.run(node(100, 100).drained(0.0))
    with pytest.raises(ReplicationError, match="n1 at 60"):
        asyncio.run(node(100, 60).drained(0.0))


def test_nobody_follows_so_nobody_has_everything() -> None:
    with pytest.raises(ReplicationError, match="no slave is connected"):
        asyncio.run(node().drained(0.0))


def test_an_observer_is_not_waited_for() -> None:
    one = node(100, 10)
    one.master.state.sessions[1].observer = True
    asyncio.run(one.drained(0.0))
