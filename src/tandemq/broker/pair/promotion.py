"""Makes a slave the master when an operator says so: nobody is disturbed before it is known that it can succeed."""

import asyncio
from typing import Final

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.classic_master import ClassicMaster, hinders_promotion
from tandemq.broker.pair.core import LOOK_SECONDS, PairCore
from tandemq.broker.pair.handing_over import HandingOver
from tandemq.broker.pair.rivals import Rivals
from tandemq.broker.pair.roles import Roles
from tandemq.codec.ha_register import GROUP_HOME, Member, Register
from tandemq.errors import CodecError, RemotingError, ReplicationError
from tandemq.replication.epochs import ReplicaRecord, place_of
from tandemq.replication.mastership.core import Phase
from tandemq.replication.metadata import ask_ha_info
from tandemq.replication.promotion import refusal_of

OPEN_SECONDS: Final = 3.0
"""A promotion is answered when it is done, or after this long with what it waits for."""
OPEN_PAUSE: Final = 0.02


class Promotion:
    """Carries out the order in a group without a coordinator; with one, failover/succession.py does."""

    def __init__(self, core: PairCore, rivals: Rivals, roles: Roles, handing_over: HandingOver) -> None:
        self._core = core
        self._rivals = rivals
        self._roles = roles
        self._handing_over = handing_over
        self._broker = core.broker

    async def promote(self, role: BrokerRole, accept_loss: bool) -> str:
        """Returns what was done, in words. Raises ReplicationError if it should not be."""
        core, broker, node = self._core, self._broker, self._core.node
        if core.homeless and node.register is not None and node.register.home != GROUP_HOME:
            raise ReplicationError(core.homeless)
        async with core.changing:
            if broker.is_master:
                return await self._allow_open(accept_loss)
            if core.live.broker.observer and not accept_loss:
                raise ReplicationError(
                    "this broker is an observer, no member of its group: promoted it begins a group of its own, and "
                    "the old one knows nothing of it. Use --accept-loss if that is meant"
                )
            record = node.record
            unheard = await self._check(record, accept_loss)
            broker.forwarder.expect_hand_over()
            old = await self._handing_over.ask_master(accept_loss)
            core.predecessor = old
            ask = frozenset({old}) if old and record.register is None else frozenset()
            former_id = core.slave_id or core.live.broker.broker_id
            await core.follower.stop()
            await node.leave_role()
            await broker.change_role(role, 0)
            core.slave_id = former_id
            await self._roles.be_master(ask, ordered=True)
            await self._rivals.announce()
            if accept_loss and node.master is not None and not node.is_open:
                node.master.allow()
            await self.until_open(OPEN_SECONDS)
            if not node.is_open:
                return self._give_up()
            node.remember_role(role.value)
            unheard |= frozenset(node.status().opened_without)
            without = f"; it could not hear {', '.join(sorted(unheard))}" if unheard else ""
            return f"{broker.address} is the master now, epoch {node.record.promise.number}{without}"

    async def _check(self, record: ReplicaRecord, accept_loss: bool) -> frozenset[str]:
        """Returns who does not answer though it should be heard.

        Raises ReplicationError if the promotion would be in vain.
        """
        node, register = self._core.node, record.register
        if record.lacks is not None and not accept_loss:
            start, stop = record.lacks
            raise ReplicationError(
                f"this slave lacks [{start}, {stop}) of the history that its master has kept, because this log was "
                "begun with the last file only: promote another, or use --accept-loss"
            )
        if not accept_loss and (hindrance := await self._classic_hindrance()):
            node.count("promotion-refused")
            raise ReplicationError(hindrance)
        if register is None:
            is_behind = record.replica not in record.in_sync or not record.complete
            if is_behind and not accept_loss and record.history.epochs:
                raise ReplicationError(
                    "this slave was not in sync when it last heard of its master and may lack acknowledged messages: "
                    "promote one that is, or use --accept-loss"
                )
            return frozenset()
        answered = await self._who_answers(register)
        refusal = refusal_of(record, answered)
        if refusal and (not accept_loss or record.replica not in register.member_ids):
            node.count("promotion-refused")
            raise ReplicationError(refusal)
        return register.everybody - answered - {record.replica, register.holder} if refusal else frozenset()

    async def _classic_hindrance(self) -> str:
        survey = ClassicMaster(self._broker.asking_client)
        node, end = self._core.node, self._broker.store.appended
        return await hinders_promotion(node.slave, survey, end, node.record.copying_to)

    async def _who_answers(self, register: Register) -> frozenset[str]:
        """Returns the replicas of the group that answer at their addresses.

        A new store at an old address is another one.
        """
        here = self._core.node.record.replica
        others = [one for one in (*register.members, *register.joining) if one.replica != here]

        async def ask(member: Member) -> str:
            address = member.address or place_of(member.replica)
            try:
                info = await ask_ha_info(self._broker.asking_client, address, LOOK_SECONDS)
            except (RemotingError, CodecError):
                return ""
            return info.get("tandemqReplica", "")

        return frozenset(await asyncio.gather(*(ask(one) for one in others))) - {""}

    def _give_up(self) -> str:
        """Ends a promotion that could not hear all it needs: this node follows again, and the operator is told."""
        core, master = self._core, self._core.node.master
        waits = ", ".join(sorted(core.node.status().waiting_for)) or "its log to be complete"
        if master is None or master.state.phase is not Phase.ASKING or core.node.register is None:
            return f"{self._broker.address} becomes the master when it has heard {waits}"
        core.predecessor = ""
        master.order(0, "the promotion was given up")
        core.node.count("promotion-refused")
        raise ReplicationError(
            f"{waits} could not be heard in time and may hold acknowledged messages, so nothing was changed: start "
            "them, or use --accept-loss"
        )

    async def until_open(self, seconds: float) -> None:
        """Waits for the outcome: the others need a moment to come, and an operator is better told it."""
        node, clock, writer = self._core.node, self._broker.clock, self._broker.writer
        deadline = clock.monotonic() + seconds
        while not (node.is_open and writer.refusal is None) and clock.monotonic() < deadline:
            if node.master is None or node.master.state.phase is Phase.DEPOSED:
                return
            await asyncio.sleep(OPEN_PAUSE)

    async def _allow_open(self, accept_loss: bool) -> str:
        """Lets a master go on that waits for others, where the operator accepts what that may lose."""
        core, node, address = self._core, self._core.node, self._broker.address
        if node.is_open and not node.status().provisional:
            return f"{address} already is the master"
        if core.waits is not None:
            if not accept_loss:
                raise ReplicationError(f"this master waits: {core.waits.why}; use --accept-loss to go on without that")
            self._rivals.may_go_on.set()
            return f"{address} goes on unless a master of its group answers"
        waits = ", ".join(node.status().waiting_for)
        if not accept_loss or node.master is None:
            text = f"this master waits for {waits}; start them, or use --accept-loss to go on without them"
            raise ReplicationError(text)
        view = await core.lookout.look(LOOK_SECONDS)
        node.master.allow(group_gone=not any(one.group_id for one in view.seen))
        await self.until_open(OPEN_SECONDS)
        return f"{address} goes on without {waits or 'the replicas it waited for'}"
