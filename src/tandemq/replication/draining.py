"""Waiting until every slave that counts has everything, so that a demotion loses nothing."""

import asyncio
from collections.abc import Callable

from tandemq.clock import Clock
from tandemq.errors import ReplicationError
from tandemq.replication.master_state import MasterState
from tandemq.replication.session import have_all
from tandemq.store.message_store import MessageStore

LOOK_SECONDS = 0.01


async def drained(master: Callable[[], MasterState | None], store: MessageStore, clock: Clock, timeout: float) -> None:
    """Returns when all slaves have everything, or this node is no master any more.

    Raises ReplicationError, which names those behind, if they don't get it in time.
    """
    deadline = clock.monotonic() + timeout
    while (state := master()) is not None:
        sessions = [session for session in state.sessions.values() if session.is_streaming and not session.observer]
        end = store.appended
        if have_all(sessions, end):
            return
        if clock.monotonic() >= deadline:
            behind = ", ".join(f"{one.replica} at {one.received}" for one in sessions) or "no slave is connected"
            raise ReplicationError(f"the slaves did not catch up with {end} within {timeout:g} s: {behind}")
        await asyncio.sleep(LOOK_SECONDS)
