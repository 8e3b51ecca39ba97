"""Moving a group's register: into a coordinator, from the group itself or from an etcd that was lost; and back.

Where the register lives is a field of it (`home`), and a broker whose haCoordinator differs from it never opens.  So a
move is one swap to which every member has to agree: all of them are asked, or an operator accepts a loss.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from tandemq.broker.pair.lookout import OPEN, seen_of
from tandemq.broker.pair.reign import Seen
from tandemq.codec.ha_register import GROUP_HOME, Register
from tandemq.errors import CodecError, RemotingError, ReplicationError
from tandemq.replication.epochs import place_of
from tandemq.replication.metadata import ask_ha_info

if TYPE_CHECKING:
    from tandemq.broker.failover.failover import Failover

log = logging.getLogger(__name__)

ASK_SECONDS = 2.0
TELL_SECONDS = 5.0


class RegisterMove:
    def __init__(self, failover: "Failover") -> None:
        self._failover = failover
        self._pair = failover.pair
        self._broker = failover.pair.broker

    async def to_coordinator(self, *, accept_loss: bool) -> str:
        """Gives etcd the register that this replica has stored.  ReplicationError if that may lose something."""
        failover, coordinator = self._failover, self._failover.coordinator
        await failover.read()
        stored, found = self._pair.node.register, coordinator.register
        if stored is None:
            raise ReplicationError("this broker knows no register: give the order to one that does")
        if not failover.refusal:
            raise ReplicationError("etcd has the register of this group already: there is nothing to do")
        if found is not None and found.group_id != stored.group_id:
            raise ReplicationError(failover.refusal)
        answers = await self._ask_all(stored)
        self._check(stored, answers, accept_loss)
        # What the last holder has stored says who was in sync; without its word everybody counts as in sync, so that
        # everybody is heard before anybody reigns.
        heard = {stored.holder} & ({self._pair.node.record.replica} | answers.keys())
        in_sync = stored.in_sync if heard else tuple(sorted(stored.member_ids))
        revision = max(stored.revision, found.revision if found is not None else 0) + 1
        new = msgspec.structs.replace(
            stored, home=coordinator.home, revision=revision, in_sync=in_sync, paused=False, pinned=False
        )
        if not await coordinator.force(new):
            raise ReplicationError("etcd was changed meanwhile: try again")
        failover.learned(new)
        await failover.read()
        failover.look()
        return f"etcd has the register of epoch {new.epoch} now"

    async def _ask_all(self, register: Register) -> dict[str, Seen]:
        """Returns replica -> what it says, of all others that answer."""

        async def ask(replica: str, address: str) -> tuple[str, Seen] | None:
            try:
                info = await ask_ha_info(self._broker.asking_client, address, ASK_SECONDS)
            except (RemotingError, CodecError):
                return None
            return (replica, seen_of(address, info)) if info.get("tandemqReplica") == replica else None

        others = [
            one for one in (*register.members, *register.joining) if one.replica != self._pair.node.record.replica
        ]
        found = await asyncio.gather(*(ask(one.replica, one.address or place_of(one.replica)) for one in others))
        return dict(one for one in found if one is not None)

    def _check(self, stored: Register, answers: dict[str, Seen], accept_loss: bool) -> None:
        for replica, seen in answers.items():
            if seen.is_open:
                raise ReplicationError(f"{replica} still takes messages ({OPEN}): restart it with haCoordinator first")
            if seen.register > stored.version:
                epoch, revision = seen.register
                raise ReplicationError(f"{replica} knows a newer register ({epoch}, {revision}): give it the order")
        silent = stored.everybody - answers.keys() - {self._pair.node.record.replica}
        if silent and not accept_loss:
            names = ", ".join(sorted(silent))
            raise ReplicationError(
                f"{names} can't be asked and may know a newer register: start them, or --accept-loss"
            )

    async def to_group(self) -> str:
        """Takes the register out of etcd: it lives in the group from now on, and nobody opens with a coordinator."""
        failover, node = self._failover, self._pair.node
        register = failover.coordinator.register
        if node.master is None or not node.is_open or register is None:
            raise ReplicationError("this broker is no open master: only one that reigns can move the register")
        others = register.everybody - {node.record.replica}
        if frozenset(register.in_sync) != register.member_ids or register.joining:
            raise ReplicationError("not every member is in sync: `tandemq ha wait --in-sync` first")
        new = msgspec.structs.replace(
            register, home=GROUP_HOME, revision=register.revision + 1, paused=False, pinned=False
        )
        if not await failover.coordinator.swap(register, new):
            raise ReplicationError("the register was changed meanwhile: try again")
        failover.learned(new)
        deadline = self._broker.clock.monotonic() + TELL_SECONDS
        while node.master is not None and self._broker.clock.monotonic() < deadline:
            if all(node.master.state.keeper.has_stored(one) for one in others):
                break
            await asyncio.sleep(0.01)
        if node.master is not None:
            node.master.order(0, "the register lives in the group now: restart the brokers without haCoordinator")
        return "the register lives in the group now: restart all brokers without haCoordinator, this one first"
