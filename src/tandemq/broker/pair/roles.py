"""Plays a role: what a master and a slave each start, and which id a slave takes."""

import asyncio
import logging
from typing import Final

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.classic_master import ClassicMaster
from tandemq.broker.pair.core import PairCore
from tandemq.broker.pair.master_finder import MasterFinder
from tandemq.codec.ha_register import GROUP_HOME, Register

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.02
"""Between two looks at whether a broker has stepped aside."""


class Roles:
    """Starts the node in a role. Whether it may write is replication's word, which reigning.py carries out."""

    def __init__(self, core: PairCore, finder: MasterFinder) -> None:
        self._core = core
        self._finder = finder
        self._broker = core.broker

    def take_that_of_register(self) -> None:
        """Takes the role that the register gives; what the file says is only the first wish."""
        core, broker, node = self._core, self._broker, self._core.node
        register = node.register
        if register is None:
            return
        here = register.find(node.record.replica)
        if register.home != GROUP_HOME:
            core.homeless = (
                f"haCoordinator is empty, but the register of this group lives in {register.home}: this broker follows "
                'and never reigns. Set haCoordinator as it was, or see docs/operations.md, "From a manual group"'
            )
            log.error("%s", core.homeless)
            core.slave_id = here.broker_id if here is not None else 0
            broker.assume_role(BrokerRole.SLAVE, core.slave_id or 1)
            return
        if here is not None and here.broker_id > 0:
            core.slave_id = here.broker_id
        if node.is_holder and not broker.is_master:
            role = BrokerRole(node.record.role or BrokerRole.SYNC_MASTER.value)
            log.warning(
                "configured as SLAVE, but this replica holds the group's last reign: it starts as %s", role.value
            )
            node.count("starts-as-master")
            broker.assume_role(role, 0)
        elif not node.is_holder and broker.is_master:
            log.warning(
                "configured as %s, but %s holds the group's last reign: it starts as a SLAVE. To make it master again "
                "use `tandemq broker promote`",
                broker.role.value,
                register.holder,
            )
            node.count("starts-as-slave")
            broker.assume_role(BrokerRole.SLAVE, core.slave_id or 1)
        elif not broker.is_master and core.slave_id:
            broker.assume_role(BrokerRole.SLAVE, core.slave_id)

    async def be_master(
        self, ask: frozenset[str] = frozenset(), *, ordered: bool = False, register: Register | None = None
    ) -> None:
        """Asks for the reign. Messages are taken when it is open, see reigning.py."""
        core, broker, config = self._core, self._broker, self._core.live.replication
        is_sync = broker.role is BrokerRole.SYNC_MASTER
        broker.writer.gate.refuse(
            "this master asks its replicas what it may have lost and takes no messages yet; see `tandemq ha status`"
        )
        broker.offsets.journal = None
        core.server.is_open = False
        await core.node.be_master(
            core.live.remoting.bind_address,
            broker.ha_port,
            config.default_level(is_sync),
            strict=is_sync,
            ask=ask,
            ordered=ordered,
            group_exists=core.group_exists,
            broker_id=core.slave_id,
            register=register,
        )

    async def be_slave(self) -> None:
        """Follows whoever the finder finds."""
        core, broker = self._core, self._broker
        core.server.is_open = True  # who follows a slave follows its tables too
        broker.offsets.journal = {}
        await core.node.be_slave(
            self._finder.find, ClassicMaster(broker.client), host=core.live.remoting.bind_address, port=broker.ha_port
        )
        core.follower.start()

    async def take_slave_id(self) -> int:
        """Returns the id to take as a slave: the register's or the file's, else one that nobody has."""
        return self._core.slave_id or await self._core.lookout.free_id()

    async def become_candidate(self, role: BrokerRole, register: Register | None, *, ordered: bool) -> None:
        """Asks the others for the reign; readers and name servers notice nothing before it is open."""
        core, broker = self._core, self._broker
        broker.forwarder.expect_hand_over()
        await core.follower.stop()
        await core.node.leave_role()
        broker.registration.is_resting = True
        await broker.take_role(role, 0)
        await self.be_master(ordered=ordered, register=register)

    async def step_aside(self) -> None:
        """Refuses writes after being deposed, then follows whoever reigns."""
        core, broker, finder = self._core, self._broker, self._finder
        async with core.changing:
            if not broker.is_master:
                return
            slave_id = await self.take_slave_id()
            if core.failover is not None:
                core.slave_id = slave_id
                finder.forget()
                # Name servers are told when it follows: until then clients reach a broker that forwards.
                broker.registration.is_resting = True
                await broker.take_role(BrokerRole.SLAVE, slave_id)
            else:
                successor, finder.successor = finder.successor, ""
                finder.forget(successor)
                await broker.change_role(BrokerRole.SLAVE, slave_id)
                if finder.is_told:
                    broker.registration.release()
            await self.be_slave()

    async def stepped_aside(self) -> None:
        """Returns when a broker that is no longer the master plays a slave."""
        while self._broker.is_master and not self._core.node.is_open:  # noqa: ASYNC110  # a few turns, after a vain election
            await asyncio.sleep(PAUSE_SECONDS)

    def recorded(self) -> None:
        """Takes the id that a register gives this broker, when a new one was stored."""
        core = self._core
        core.book.note(core.node.member_addresses())
        register = core.node.register
        here = register.find(core.node.record.replica) if register is not None else None
        if here is None or here.broker_id in (0, core.slave_id):
            return
        log.warning("the register gives this broker the id %d instead of %d", here.broker_id, core.slave_id)
        core.slave_id = here.broker_id
        if not self._broker.is_master and not core.is_starting:
            core.spawn(self._take_id(here.broker_id), "take the register's id")

    async def _take_id(self, broker_id: int) -> None:
        core, broker = self._core, self._broker
        async with core.changing:
            if broker.is_master:
                return
            if core.failover is not None:
                broker.assume_role(BrokerRole.SLAVE, broker_id)
                broker.registration.resume()
            elif core.live.broker.broker_id != broker_id:
                await broker.change_role(BrokerRole.SLAVE, broker_id)
