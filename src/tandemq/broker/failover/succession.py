"""How a reign passes on without anybody dying: an operator's order, a stop, a full disk, a preferred master.

When, and to whom, is decided by replication/handover.py.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.ha_register import Register
from tandemq.errors import CodecError, CoordinatorError, RemotingError, ReplicationError
from tandemq.replication import register as registers
from tandemq.replication.election import Candidate, why_not
from tandemq.replication.handover import HandOver, Reigning, successors
from tandemq.replication.metadata import PairCode

if TYPE_CHECKING:
    from tandemq.broker.failover.failover import Failover

log = logging.getLogger(__name__)

PAUSE = 0.03
HAND_OVER_SECONDS = 15.0
SWAPS_MAX = 10


class Succession:
    def __init__(self, failover: "Failover") -> None:
        self._failover = failover
        self._pair = failover.pair
        self._broker = failover.pair.broker
        self._clock = self._broker.clock
        self._state = HandOver(failover.lease.seconds)

    # --- taking ----------------------------------------------------------------------------------------------------

    async def promote(self, *, accept_loss: bool, pinned: bool) -> str:
        """Makes this broker reign, as an operator or a stopping master wants.

        Raises ReplicationError if it should not.
        """
        failover, node = self._failover, self._pair.node
        if self._broker.is_master and node.is_open:
            return f"{self._broker.address} already is the master"
        try:
            await failover.read()
        except CoordinatorError as error:
            raise ReplicationError(f"nobody is promoted without the coordinator: {error}") from error
        register = failover.coordinator.register
        why = failover.refusal
        if not why and register is not None:
            why = why_not(register, node.record.replica, failover.hindrance())
        if why and not accept_loss:
            raise ReplicationError(f"this broker can't be promoted: {why}; promote another one, or use --accept-loss")
        self._broker.forwarder.expect_hand_over()
        failover.is_ordered = True
        try:
            await self._reign(accept_loss=accept_loss, pinned=pinned)
        finally:
            failover.is_ordered = failover.was_handed = False
        await self._pair.until_open(failover.lease.seconds)
        return f"{self._broker.address} is the master now, epoch {node.record.promise.number}"

    async def _reign(self, *, accept_loss: bool, pinned: bool) -> None:
        """Opens a reign after the holder's; where another one is elected meanwhile, after that one's."""
        failover = self._failover
        deadline = self._clock.monotonic() + 2 * failover.lease.seconds + 1
        while True:
            before = failover.coordinator.register
            failover.was_handed = before is not None and await self._take_over(deadline)
            if await failover.stand("order", ordered=True, pinned=pinned, accept_loss=accept_loss):
                return
            await failover.read()
            now, late = failover.coordinator.register, self._clock.monotonic() >= deadline
            if before is not None and now is not None and now.epoch != before.epoch:
                self._check_named(now)
            if before is None or now is None or now.epoch == before.epoch or late:
                raise ReplicationError(
                    "not all in-sync replicas could be heard in time and they may hold acknowledged messages, so "
                    "nothing was changed: start them, or use --accept-loss"
                )

    def _check_named(self, register: Register) -> None:
        """Raises ReplicationError if one was elected meanwhile who does not know this store, and so never follows it.

        An accepted loss was meant for a group that nobody reigns in: it deposes no master for one that can't reign.
        """
        if self._pair.node.record.replica not in register.everybody:
            raise ReplicationError(
                f"{register.holder} was elected meanwhile, and its register does not name this broker: it joins the "
                "group first; see `tandemq ha status`"
            )

    async def _take_over(self, deadline: float) -> bool:
        """Returns whether the holder has handed over; else its lease has ended, it is dead, or this node holds it.

        Raises ReplicationError if none of that. A holder that hangs may be replaced meanwhile: its successor is asked.
        """
        failover, node = self._failover, self._pair.node
        asked: int | None = None
        while True:
            register = failover.coordinator.register
            if register is None or register.holder == node.record.replica:
                return False
            if asked is None or (asked != register.epoch and self._follows(register)):
                asked = register.epoch
                try:
                    if await self._pair.demote_master(False):
                        return True
                except ReplicationError as error:
                    log.warning("%s; its lease is waited for", error)
            now = self._clock.monotonic()
            if failover.candidacy.may_take_over(failover.coordinator.keys, now):
                return False
            if now >= deadline:
                raise ReplicationError(f"the master {register.holder} neither hands over nor loses its lease")
            await asyncio.sleep(PAUSE)

    def _follows(self, register: Register) -> bool:
        """Returns whether this node follows the holder of that epoch, so that it can be asked."""
        node = self._pair.node
        return node.is_following and node.register is not None and node.register.epoch == register.epoch

    # --- giving ----------------------------------------------------------------------------------------------------

    async def hand_over(self, why: str) -> bool:
        """Gives the reign to the best in-sync member; False if there is none, or none took it."""
        register = self._failover.coordinator.register
        if not self._pair.node.is_open or register is None or register.paused:
            return False
        return await self._hand_to_first(successors(await self._failover.candidates()), why)

    async def _hand_to_first(self, found: list[Candidate], why: str) -> bool:
        for one in found:
            if await self._hand_to(one, why):
                return True
        return False

    async def _hand_to(self, one: Candidate, why: str) -> bool:
        register = self._failover.coordinator.register
        if register is None:
            return False
        address = self._failover.address_of(one.replica)
        log.warning("%s: hands over to %s", why, address)
        ext = {"handOver": "true", "epoch": str(register.epoch)}
        try:
            reply = await self._broker.peer_client.invoke(address, Command(PairCode.PROMOTE, ext), HAND_OVER_SECONDS)
        except (RemotingError, CodecError) as error:
            log.warning("%s did not take over: %s", address, error)
            return False
        if reply.code != ResponseCode.SUCCESS:
            log.warning("%s did not take over: %s", address, reply.remark)
        return reply.code == ResponseCode.SUCCESS

    async def consider(self, now: float) -> None:
        """Hands over if the disk is full, the log is poisoned, or another one is preferred."""
        failover, health = self._failover, self._broker.store.health
        node = Reigning(
            register=failover.coordinator.register,
            has_lapsed=failover.lease.state.has_lapsed,
            wants_copies=failover.fence.wants_copies,
            unwritable="" if health.writable else health.reason,
            priority=failover.priority,
        )
        if self._state.wants_candidates(node, now):
            found, why = self._state.decide(node, await failover.candidates(), now)
            await self._hand_to_first(found, why)

    async def pause(self, paused: bool) -> str:
        """Stops elections until they are resumed: kept in the register, so that it holds for everybody."""
        failover, coordinator = self._failover, self._failover.coordinator
        for _ in range(SWAPS_MAX):
            await failover.read()
            register = coordinator.register
            if failover.refusal or register is None:
                raise ReplicationError(failover.refusal or "there is no group yet")
            if register.paused == paused:
                break
            new = registers.with_paused(register, paused)
            if await coordinator.swap(register, new):
                failover.learned(new)
                break
        else:
            raise ReplicationError("the register changes all the time: try again")
        return "elections are paused: `tandemq ha resume` ends that" if paused else "elections go on"
