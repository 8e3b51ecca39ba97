"""A master and the others of its group: it looks around for whoever reigns, and tells them when it does itself."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from tandemq.broker.pair.core import ASK_SECONDS, LOOK_SECONDS, PairCore
from tandemq.broker.pair.facts import PairFacts
from tandemq.broker.pair.lookout import seen_of
from tandemq.broker.pair.master_finder import MasterFinder
from tandemq.broker.pair.reign import Own, RoleVerdict, Seen, Step, View, decide
from tandemq.codec.command import Command
from tandemq.errors import CodecError, RemotingError
from tandemq.replication.metadata import PairCode

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS: Final = 5.0
"""An open master looks around with a registration, not more often than this."""


class Rivals:
    """Applies the rules of reign.py to what the lookout finds, while this node has a master's role."""

    def __init__(self, core: PairCore, finder: MasterFinder, facts: PairFacts) -> None:
        self._core = core
        self._finder = finder
        self._facts = facts
        self._broker = core.broker
        self._looked_at = float("-inf")
        self.may_go_on = asyncio.Event()
        """The operator lets this node go on without those who are silent."""

    # --- looking ----------------------------------------------------------------------------------------------------

    def decide(self, view: View, *, waited: bool = False) -> RoleVerdict:
        """Returns what this node does next about what it sees."""
        core = self._core
        record = core.node.record
        last = record.last_reign
        own = Own(
            address=self._broker.address,
            is_open=core.node.is_open,
            reign=(last.number, last.id) if last is not None else (0, ""),
            claim=(record.promise.number, record.promise.id),
            replica=record.replica,
            group_id=record.register.group_id if record.register is not None else "",
            register=record.register.version if record.register is not None else (0, 0),
            is_new=record.register is None and not record.history.epochs and self._broker.store.appended == 0,
        )
        allowed = core.live.replication.open_without_replicas or self.may_go_on.is_set()
        return decide(own, view, waited=waited, allowed=allowed)

    def look_soon(self) -> None:
        """Makes a master look around: partitions heal, and conf files lie."""
        core, now = self._core, self._broker.clock.monotonic()
        if core.waits is None and not core.is_starting and now - self._looked_at >= LOOK_AGAIN_SECONDS:
            self._looked_at = now
            core.spawn(self._look_around(), "look around")

    async def _look_around(self) -> None:
        view = await self._core.lookout.look(LOOK_SECONDS)
        async with self._core.changing:
            if self._broker.is_master:
                await self._obey(self.decide(view, waited=True))

    async def _obey(self, verdict: RoleVerdict) -> None:
        """Does what a playing master does about another one."""
        node = self._core.node
        if node.master is None:
            return
        if verdict.step is Step.FOLLOW:
            self._finder.successor = verdict.address
            node.master.order(0, verdict.why)
        elif verdict.step is Step.TELL:
            log.warning("two masters: %s; it is told to step down", verdict.why)
            node.count("met-an-outdated-master")
            await self._announce_to([verdict.address])
            self._broker.registration.announce()

    # --- being told -------------------------------------------------------------------------------------------------

    async def heard(self, ext: Mapping[str, str]) -> None:
        """Takes another broker's announcement that it is the master, or asks to be."""
        core, address = self._core, ext.get("masterAddress", "")
        core.book.note([address])
        seen = seen_of(address, ext)
        if self._broker.is_master and core.failover is not None:
            core.failover.announced(ext)  # who reigns is told by the coordinator
        elif self._broker.is_master:
            verdict = self.decide(View(seen=[seen]), waited=True)
            if verdict.step is Step.FOLLOW:
                await self._obey(verdict)
        elif not self._is_outdated(seen):
            is_ours = core.failover is not None and "tandemqGroup" in ext
            self._finder.announced_by_candidate(ext.get("masterHaAddress", ""), address, is_ours=is_ours)

    def _is_outdated(self, seen: Seen) -> bool:
        """Returns whether one that announces itself knows less of the group than the master this slave follows."""
        node = self._core.node
        if node.register is None or not node.is_following or seen.group_id != node.register.group_id:
            return False
        return seen.register[0] < node.register.epoch

    # --- telling ----------------------------------------------------------------------------------------------------

    async def announce(self) -> None:
        """Tells the group's other brokers who is master now, instead of waiting for their next registration."""
        known = (*(await self._core.lookout.addresses()).values(), *self._core.book.addresses)
        await self._announce_to(set(known) - {self._broker.address})

    def announce_soon(self, addresses: Iterable[str]) -> None:
        """Tells the others where a candidate is, without waiting for those that hang."""
        self._core.spawn(self._announce_to(set(addresses)), "announce")

    async def _announce_to(self, addresses: Iterable[str]) -> None:
        facts = self._facts.ha_facts()
        info = {**facts.extra, "masterHaAddress": facts.ha_address, "masterAddress": self._broker.address}

        async def tell(address: str) -> None:
            try:
                await self._broker.peer_client.invoke(address, Command(PairCode.ANNOUNCE, dict(info)), ASK_SECONDS)
            except (RemotingError, CodecError) as error:
                log.info("%s was not told that this broker is the master: %s", address, error)

        await asyncio.gather(*(tell(address) for address in addresses))
