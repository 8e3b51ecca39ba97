"""The beginning and the end of a reign, as the broker carries them out when its node tells of them.

opened    tables of those who were heard ─▶ the group is told ─▶ copies are back ─▶ writes, services
closed    writes refused in the same turn ─▶ services end ─▶ deposed: follow whoever reigns
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from tandemq.broker.pair.core import ASK_SECONDS, PairCore
from tandemq.broker.pair.rivals import Rivals
from tandemq.broker.pair.roles import Roles
from tandemq.errors import CodecError, RemotingError, ReplyError
from tandemq.replication.metadata import merge_tables_of

log = logging.getLogger(__name__)

BACK_SECONDS: Final = 0.5
"""For the master that handed over to be in sync again, before its successor takes messages."""
BACK_PAUSE: Final = 0.005


class Reigning:
    """Opens the broker to writers and closes it to them."""

    def __init__(self, core: PairCore, rivals: Rivals, roles: Roles) -> None:
        self._core = core
        self._rivals = rivals
        self._roles = roles
        self._broker = core.broker
        self._forbidding: asyncio.Task[None] | None = None

    def opened(self) -> None:
        """Takes the newest tables, then messages: replication has settled what the log is."""
        core, broker = self._core, self._broker
        broker.writer.forget_flushes()
        core.tables.settle(broker.store.appended)
        heard = core.node.heard_addresses()
        if heard and not core.server.is_open:  # one that has reigned since it took the role has the newest tables
            broker.writer.gate.refuse("this master takes over the newest tables of its group")
            core.spawn(self._take_tables(heard), "tables of the group")
        else:
            self._allow_writes()

    async def _take_tables(self, addresses: Iterable[str]) -> None:
        """Takes topics, groups and offsets from those who were heard, as the log was; bounded."""
        core = self._core

        async def merge(address: str) -> None:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    await merge_tables_of(self._broker.peer_client, core.tables, address, ASK_SECONDS)
            except (RemotingError, ReplyError, CodecError, TimeoutError) as error:
                log.warning("%s was heard but did not tell its topics, groups and offsets: %s", address, error)

        await asyncio.gather(*(merge(address) for address in addresses))
        if core.node.is_open:
            self._allow_writes()

    def _allow_writes(self) -> None:
        core = self._core
        core.server.is_open = True
        core.server.changed()
        if core.is_starting:
            self._broker.writer.gate.allow()  # the broker starts its services itself when it is up
        else:
            core.spawn(self._open_broker(), "open")

    async def _open_broker(self) -> None:
        """Opens the broker; what only a writer does ends before it begins again."""
        core, broker = self._core, self._broker
        while self._forbidding is not None and not self._forbidding.done():
            await asyncio.wait([self._forbidding])
        if core.node.is_open:
            core.spawn(self._rivals.announce(), "announce")
            await self._copies_back()
        if not core.node.is_open:
            return
        if core.failover is None:
            broker.allow_writes()
            broker.registration.announce()  # whatever a former master told last, this is newer
        else:
            broker.allow_writes(services=not core.failover.fence.wants_copies)
            broker.registration.resume()

    async def _copies_back(self) -> None:
        """Waits for those whose copies sends will want, for a moment: they have just heard of this reign."""
        core = self._core
        predecessor, core.predecessor = core.predecessor, ""
        if core.failover is not None:
            await self._while_open(self._are_enough_back)
        elif predecessor and self._broker.writer.level.copies != 1:
            await self._while_open(lambda: self._is_back(predecessor))

    def _are_enough_back(self) -> bool:
        core, register = self._core, self._core.node.register
        wanted = self._broker.writer.level.needed(self._broker.acks.group_size) - 1
        if register is None or len(register.in_sync) <= wanted:
            return True
        return sum(one.in_sync for one in core.node.status().replicas) >= wanted

    def _is_back(self, replica: str) -> bool:
        return any(one.in_sync for one in self._core.node.status().replicas if one.replica == replica)

    async def _while_open(self, is_done: Callable[[], bool]) -> None:
        """Waits for a condition, at most BACK_SECONDS, and not beyond the end of this reign."""
        clock = self._broker.clock
        deadline = clock.monotonic() + BACK_SECONDS
        while self._core.node.is_open and clock.monotonic() < deadline:
            if is_done():
                return
            await asyncio.sleep(BACK_PAUSE)

    def closed(self, reason: str, deposed: bool) -> None:
        """Takes no message from this turn on; what else a master does ends by itself."""
        core, broker = self._core, self._broker
        core.tables.true_at = broker.store.appended
        text = f"this broker is no longer the master: {reason}"
        broker.writer.gate.refuse(text)
        if core.failover is not None:
            core.failover.closed(deposed)
        if deposed:
            broker.forwarder.expect_hand_over()
            core.spawn(self._roles.step_aside(), "step aside")
        else:
            self._forbidding = core.spawn(broker.forbid_writes(text), "forbid writes")
