"""Locks on queues of an ordered consumer: granted by the broker for 60 s, trusted for 30 s, renewed every 20 s."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from tandemq.client.broker_api import by_broker
from tandemq.client.process_queue import ProcessQueue
from tandemq.client.session import Session
from tandemq.errors import TandemError
from tandemq.model.topic import QueueRef

log = logging.getLogger("tandemq.client")

RENEW_S = 20.0


class QueueLocks:
    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def acquire(self, queues: Iterable[QueueRef]) -> set[QueueRef]:
        """Those that nobody else holds. A broker that does not answer grants nothing."""
        granted: set[QueueRef] = set()
        for name, wanted in by_broker(tuple(queues)).items():
            try:
                address = await self._session.master(name, wanted[0].topic)
                granted |= await self._session.api.lock(address, self._group, self._session.client_id, wanted)
            except TandemError as error:
                log.warning("group %s: no locks from %s: %s", self._group, name, error)
        return granted & set(queues)

    async def release(self, queues: Iterable[QueueRef]) -> None:
        for name, wanted in by_broker(tuple(queues)).items():
            try:
                address = await self._session.master(name, wanted[0].topic)
                await self._session.api.unlock(address, self._group, self._session.client_id, wanted)
            except TandemError as error:
                log.info("group %s: locks on %s expire by themselves: %s", self._group, name, error)

    async def renew_forever(self, states: Callable[[], Mapping[QueueRef, ProcessQueue]]) -> None:
        """A lock that was not renewed is not trusted any more: its queue pauses until it is ours again."""
        while True:
            await asyncio.sleep(RENEW_S)
            held = dict(states())
            granted = await self.acquire(held)
            now = self._session.clock.monotonic()
            for queue, state in held.items():
                if queue in granted:
                    state.locked_at = now
                elif not state.locked(now):
                    log.warning("group %s: the lock on %s is lost", self._group, queue)
