"""The first role after a start: a master's role in the file is a wish, until it is clear that nobody else reigns."""

import asyncio
import logging
from typing import Final

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.core import LOOK_SECONDS, PairCore
from tandemq.broker.pair.master_finder import MasterFinder
from tandemq.broker.pair.reign import RoleVerdict, Step
from tandemq.broker.pair.rivals import Rivals
from tandemq.broker.pair.roles import Roles

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 0.4
"""For every answer when nobody is on record, so that a lone broker starts at once."""
LOOK_PAUSE: Final = 0.25
START_PAUSE: Final = 0.02


class FirstRole:
    """Looks around before a master plays its role; waits for word where somebody who is silent may reign."""

    def __init__(self, core: PairCore, finder: MasterFinder, rivals: Rivals, roles: Roles) -> None:
        self._core = core
        self._finder = finder
        self._rivals = rivals
        self._roles = roles
        self._broker = core.broker

    async def begin(self) -> None:
        """Finds out whether one configured to be master is it, or somebody else reigns meanwhile."""
        core, broker = self._core, self._broker
        view = await core.lookout.look(LOOK_SECONDS if core.book.addresses else FRESH_SECONDS)
        core.group_exists = any(one.group_id for one in view.seen)
        verdict = self._rivals.decide(view)
        if verdict.step is Step.FOLLOW:
            self._say_follows(verdict)
            broker.assume_role(BrokerRole.SLAVE, await self._roles.take_slave_id())
            await self._roles.be_slave()
        elif verdict.step is Step.WAIT:
            self._wait_for_word(verdict)
            broker.registration.is_held = True
            broker.offsets.journal = {}
            core.spawn(self._until_word(), "word from the group")
        else:
            await self._roles.be_master()

    def _say_follows(self, verdict: RoleVerdict) -> None:
        log.warning(
            "configured as %s, but %s: this broker starts as a SLAVE and follows it. To make it master again use "
            "`tandemq broker promote`",
            self._broker.role.value,
            verdict.why,
        )
        self._core.node.count("starts-as-slave")
        self._finder.begin_with(verdict.address)

    def _wait_for_word(self, verdict: RoleVerdict) -> None:
        core = self._core
        wait = core.live.replication.rejoin_wait_ms / 1000
        text = f"{verdict.why}; one of them may be the master now"
        if core.waits is None:
            log.warning(
                "%s. This broker serves readers, takes no messages, and looks again and again, for %g s if there is no "
                "name server to ask; `tandemq broker promote --accept-loss` lets it go on",
                text,
                wait,
            )
        core.waits = verdict
        self._broker.writer.gate.refuse(f"this master takes no messages yet: {text}")

    async def _until_word(self) -> None:
        """Looks again and again until it is clear who reigns, then plays the role that is left."""
        core, broker, rivals = self._core, self._broker, self._rivals
        clock = broker.clock
        give_up_at = clock.monotonic() + core.live.replication.rejoin_wait_ms / 1000
        while True:
            try:
                async with asyncio.timeout(LOOK_PAUSE):
                    await rivals.may_go_on.wait()
            except TimeoutError:
                pass
            if not broker.is_started:
                await asyncio.sleep(START_PAUSE)  # the order may have come before: waiting for it does not pause then
                continue
            view = await core.lookout.look(LOOK_SECONDS)
            core.group_exists = any(one.group_id for one in view.seen)
            verdict = rivals.decide(view, waited=clock.monotonic() >= give_up_at)
            if verdict.step is Step.WAIT:
                self._wait_for_word(verdict)
                continue
            break
        async with core.changing:
            core.waits = None
            broker.registration.is_held = False
            if verdict.step is Step.FOLLOW:
                self._say_follows(verdict)
                await broker.change_role(BrokerRole.SLAVE, await self._roles.take_slave_id())
                await self._roles.be_slave()
                return
            if view.silent:
                log.warning("goes on without word from %s", ", ".join(view.silent))
            await self._roles.be_master()
            if rivals.may_go_on.is_set() and core.node.master is not None and not core.node.is_open:
                core.node.master.allow()
            broker.registration.start()
