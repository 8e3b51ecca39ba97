"""Whom a slave follows: what others announced, name servers registered and the file says, and how its master is asked.

announced    another broker said that it is the master: the newest word there is
registered   what name servers say
configured   haMasterAddress, where an operator gave one
coordinator  the holder that its register names, where there is one
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from tandemq.broker.addresses import HA_OFFSET, broker_port_of
from tandemq.broker.pair.core import LOOK_SECONDS, PairCore
from tandemq.broker.pair.lookout import SLAVE
from tandemq.broker.registration import Registered
from tandemq.codec.ha_reasons import Reason
from tandemq.errors import CodecError, RemotingError
from tandemq.replication.metadata import KeyWanted, ask_ha_info
from tandemq.replication.slave import MasterPlace, NotFollowable
from tandemq.replication.slave_state import SlaveState

DISCOVERY_FAILURES_MAX: Final = 3
"""Unanswered questions over the remoting port before a slave speaks classic to the HA port it was given."""


class MasterFinder:
    """Knows the master of the group as far as somebody told, and asks it where its HA port is."""

    def __init__(self, core: PairCore) -> None:
        self._core = core
        self._broker = core.broker
        self._live = core.live
        self._registered = self._registered_ha = ""
        self._announced: tuple[str, str] | None = None
        """(HA address, remoting address) of a master that told us about itself."""
        self._just_announced = False
        """It has told where its HA port is a moment ago: once, nobody needs to ask it for that."""
        self._is_ours = False
        self._unanswered = 0
        self._changed = asyncio.Event()
        """Another one has announced itself: whoever still asks the former master stops."""
        self.successor = ""
        """Who reigns instead of us, when we were told."""

    # --- what is known ----------------------------------------------------------------------------------------------

    @property
    def is_ours(self) -> bool:
        """Whether the master that was asked last is a TandemQ broker."""
        return self._is_ours

    @property
    def is_told(self) -> bool:
        """Whether a name server or the former reign named somebody to follow."""
        return bool(self._registered)

    @property
    def address(self) -> str:
        """The remoting address of the master; guessed from its HA address when nobody told.

        Of an observer, that of the broker it was told to follow, which need not be the master.
        """
        if self._live.broker.observer and (observed := broker_port_of(self._live.replication.ha_master_address)):
            return observed
        if self._announced is not None and self._announced[1]:
            return self._announced[1]
        if self._registered:
            return self._registered
        if self._core.failover is not None:
            return self._core.failover.holder_address
        return broker_port_of(self._live.replication.ha_master_address)

    def reigning_address(self) -> str:
        """Returns where requests go that only a master can answer.

        Empty while this node reigns or knows nobody who does.
        """
        if self._live.broker.observer:
            return ""
        if self._core.failover is not None:
            return self._core.failover.holder_address
        if self._broker.is_master:
            address = self.successor
        else:  # one that was only guessed, or is not ours, is not given what clients send
            address = self.address if self._announced is not None or self._is_ours else ""
        return address if address != self._broker.address else ""

    def metadata_place(self) -> tuple[str, bool] | None:
        """Returns where topics, groups and offsets are copied from, and whether that broker is ours."""
        address = self.address
        return (address, self._is_ours) if address and address != self._broker.address else None

    def ha_port_of(self, address: str) -> int:
        """Returns the HA port of the broker that was followed last."""
        slave = self._core.node.slave
        text = slave.place.ha_address if slave is not None and slave.place is not None else ""
        port = text.rpartition(":")[2] or str(int(address.rpartition(":")[2]) + HA_OFFSET)
        return int(port)

    # --- what is told -----------------------------------------------------------------------------------------------

    def forget(self, registered: str = "") -> None:
        """Forgets what others said; `registered` is whom to ask first from now on."""
        self._announced = None
        self._registered, self._registered_ha = registered, ""

    def begin_with(self, address: str) -> None:
        """Takes the outcome of a look around for what name servers say."""
        self._registered = address

    def registered(self, registered: Registered) -> None:
        """Takes a name server's answer to a slave, which names the master of the group, if it knows one."""
        if registered.master_address == self._broker.address:
            return
        changed = registered.master_address and registered.master_address != self._registered
        self._registered = registered.master_address
        self._registered_ha = registered.ha_address or self._registered_ha
        node = self._core.node
        if changed and not self._core.is_starting and node.slave is not None:
            self._announced = None
            # A session that stands is with the master: it ends by itself if that reign does.
            if not node.is_following:
                node.slave.look_again()

    def announced(self, ha_address: str, address: str) -> None:
        """Takes the word of another broker that it is our master."""
        if self._broker.is_master or address == self._broker.address:
            return
        node = self._core.node
        slave = node.slave
        is_followed = slave is not None and node.is_following and slave.place is not None
        self._announced = (ha_address, address)
        self._broker.registration.release()
        self._broker.forwarder.changed()
        self._changed.set()
        if slave is not None and not (is_followed and slave.place is not None and slave.place.ha_address == ha_address):
            slave.reconnect()

    def announced_by_candidate(self, ha_address: str, address: str, *, is_ours: bool) -> None:
        """Takes an announcement by a broker of the group, which need not be asked for its HA port at once."""
        self._just_announced = is_ours
        self.announced(ha_address, address)

    def follow(self, address: str) -> None:
        """Follows another holder, whom the coordinator's register names."""
        self._broker.forwarder.changed()
        node, failover = self._core.node, self._core.failover
        slave, register = node.slave, failover.register if failover is not None else None
        if slave is None or register is None or not address:
            return
        state = slave.state
        if isinstance(state, SlaveState) and state.is_connected and state.master == register.holder:
            return  # it has heard this one when it was a candidate
        if self._announced is not None and self._announced[1] == address and not node.is_following:
            slave.look_again()
            return
        self.forget()
        self._changed.set()
        slave.reconnect()

    # --- asking -----------------------------------------------------------------------------------------------------

    async def find(self) -> MasterPlace | None:
        """Returns where to connect and which language is spoken there; None when nobody knows a master."""
        configured = self._live.replication.ha_master_address
        announced = self._announced[0] if self._announced is not None else ""
        ha_address = announced or configured or self._registered_ha
        address = self.address or await self._look_up()
        if not address or address == self._broker.address:
            return MasterPlace(ha_address, False) if ha_address and not address else None
        if self._just_announced and announced:
            self._just_announced, self._is_ours = False, True
            return MasterPlace(announced, True, self._core.node.group)
        try:
            info = await self._ask(address)
        except KeyWanted as error:
            if not ha_address:
                raise NotFollowable(Reason.KEY_REFUSED, str(error)) from error
            return MasterPlace(ha_address, True)  # it is ours: what both have to say about keys is said there
        except (RemotingError, CodecError) as error:
            self._unanswered += 1
            await self._look_up()
            if ha_address and self._unanswered > DISCOVERY_FAILURES_MAX and not self._is_ours:
                return MasterPlace(ha_address, False, address=address)
            raise OSError(f"broker port {address} does not answer ({error})") from error
        self._unanswered = 0
        if info.get("tandemqRole") == SLAVE:
            if self._live.broker.observer and configured:
                self._is_ours = True
                has_epochs = info.get("tandemqEpochId", "") != ""
                return MasterPlace(configured, has_epochs, info.get("tandemqGroup", ""), address)
            await self._is_a_slave(address, info.get("tandemqFollows", ""))
        self._is_ours = info.get("tandemqHa") == "1"
        if self._is_ours:
            told = info.get("masterHaAddress", "")
            if configured and configured != told and await self._is_slaves(configured):
                configured = told  # an order of things before a promotion
            return MasterPlace(announced or configured or told, True, info.get("tandemqGroup", ""))
        ha_address = ha_address or info.get("masterHaAddress", "")
        return MasterPlace(ha_address, False, address=address) if ha_address else None

    async def _is_a_slave(self, address: str, follows: str) -> None:
        """Raises NotFollowable for one that is the master no more, and looks elsewhere next time."""
        self.forget(follows if follows != self._broker.address and self._core.failover is None else "")
        if not self._registered:
            await self._look_up()
        where = f", which follows {follows}" if follows else ""
        raise NotFollowable(Reason.NOT_MASTER, f"the broker at {address} is a slave itself{where}")

    async def _is_slaves(self, ha_address: str) -> bool:
        """Returns whether the broker beside a configured HA address says that it is a slave."""
        address = broker_port_of(ha_address)
        if not address:
            return False
        try:
            info = await ask_ha_info(self._broker.asking_client, address, LOOK_SECONDS)
        except (RemotingError, CodecError):
            return False
        return info.get("tandemqRole") == SLAVE

    async def _look_up(self) -> str:
        """Returns whom the name servers call master of our group now; registrations bring it only every half minute."""
        if self._core.failover is not None:
            return self._core.failover.holder_address
        if self._live.replication.ha_master_address and self._registered:
            return self._registered
        address = (await self._core.lookout.addresses()).get(0, "")
        if address and address not in (self._broker.address, self._registered):
            self.forget(address)
        return address

    async def _ask(self, address: str) -> Mapping[str, str]:
        """Asks where the HA port is; gives up when another one announces itself meanwhile."""
        if self._core.failover is None:
            return await ask_ha_info(self._broker.asking_client, address)
        self._changed.clear()
        seconds = self._live.replication.lease_seconds / 4
        asking = asyncio.ensure_future(ask_ha_info(self._broker.asking_client, address, seconds))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((asking, changed), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise RemotingError("another broker has announced itself")
            return asking.result()
        finally:
            for task in (asking, changed):
                task.cancel()
            await asyncio.gather(asking, changed, return_exceptions=True)
