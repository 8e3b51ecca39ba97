"""Locks on the queues of an ordered consumer: granted by the broker for 60 s, trusted for 30 s, renewed every 20 s."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tandemq.client.broker_api import by_broker
from tandemq.client.process_queue import ProcessQueue
from tandemq.client.session import Session
from tandemq.errors import TandemError
from tandemq.model.topic import QueueRef

log = logging.getLogger("tandemq.client")

RENEW_S = 20.0
RECLAIM_S = 0.25
"""How soon a lock that can't be trusted is asked for again: whoever held it should have it before anybody else asks."""


class LockAnswer(NamedTuple):
    """What the brokers said; queues of a broker that did not answer are in neither set."""

    granted: set[QueueRef]
    refused: set[QueueRef]


class QueueLocks:
    """Asks for the locks of one consumer group."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self.asked: set[QueueRef] = set()
        """Queues whose lock we may hold: asked for and not freed."""
        self._wanted = asyncio.Event()

    def soon(self) -> None:
        """Renews at once: the group changes, or a master is gone and its successor knows nothing of our locks."""
        self._wanted.set()

    async def acquire(self, queues: Iterable[QueueRef]) -> LockAnswer:
        """Asks for locks, or for their renewal. A broker refuses those that another member holds."""
        answer = LockAnswer(set(), set())
        for name, wanted in by_broker(tuple(queues)).items():
            self.asked.update(wanted)
            try:
                granted = await self._session.ask_master(
                    name,
                    wanted[0].topic,
                    lambda address, wanted=wanted: self._session.api.lock(  # type: ignore[misc]
                        address, self._group, self._session.client_id, wanted
                    ),
                )
            except TandemError as error:
                log.warning("group %s: no locks from %s: %s", self._group, name, error)
                continue
            answer.granted.update(granted & set(wanted))
            answer.refused.update(set(wanted) - granted)
            self.asked -= answer.refused
        return answer

    async def release(self, queues: Iterable[QueueRef]) -> None:
        """Frees locks, so that other members need not wait until they expire."""
        for name, wanted in by_broker(tuple(queues)).items():
            self.asked.difference_update(wanted)
            try:
                await self._session.ask_master(
                    name,
                    wanted[0].topic,
                    lambda address, wanted=wanted: self._session.api.unlock(  # type: ignore[misc]
                        address, self._group, self._session.client_id, wanted
                    ),
                )
            except TandemError as error:
                log.info("group %s: locks on %s expire by themselves: %s", self._group, name, error)

    async def renew_forever(
        self,
        states: Callable[[], Mapping[QueueRef, ProcessQueue]],
        lost: Callable[[QueueRef], None],
        regained: Callable[[QueueRef], None],
    ) -> None:
        """Renews the locks of all queues held; tells `lost` about those that the broker gave to somebody else.

        A lock that could not be renewed for 30 s is not trusted: its queue waits until the broker answers again, which
        `regained` is told.
        """
        while True:
            trusted = all(self._is_trusted(state) for state in states().values())
            try:
                async with asyncio.timeout(RENEW_S if trusted else RECLAIM_S):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            await self.renew(states(), lost, regained)

    def _is_trusted(self, state: ProcessQueue) -> bool:
        return state.dropped or state.locked(self._session.clock.monotonic())

    async def renew(
        self,
        held: Mapping[QueueRef, ProcessQueue],
        lost: Callable[[QueueRef], None],
        regained: Callable[[QueueRef], None],
    ) -> None:
        """Renews once."""
        states = {queue: state for queue, state in held.items() if not state.dropped}
        asked_at = self._session.clock.monotonic()
        answer = await self.acquire(states)
        for queue in answer.granted:
            was_trusted = self._is_trusted(states[queue])
            states[queue].locked_at = asked_at
            if not was_trusted:
                regained(queue)
        for queue in answer.refused:
            if not states[queue].dropped:
                log.warning("group %s: the lock on %s is held by another member", self._group, queue)
                lost(queue)
