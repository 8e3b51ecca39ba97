"""How a reign passes on without anybody dying: an operator's order, a stop, a full disk, a preferred master.

Also what lets a reign go on without etcd: the word of every in-sync member not to stand for a while.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.ha_register import Register
from tandemq.errors import CodecError, CoordinatorError, RemotingError, ReplicationError
from tandemq.replication import register as registers
from tandemq.replication.election import NEVER, Candidate, preferred, why_not
from tandemq.replication.fence import MARGIN_SHARE
from tandemq.replication.metadata import PairCode

if TYPE_CHECKING:
    from tandemq.broker.failover import Failover

log = logging.getLogger(__name__)

PAUSE = 0.03
HAND_OVER_SECONDS = 15.0
SWAPS_MAX = 10
AGAIN_LEASES = 5
"""A preferred master that did not take the reign is not asked again for so many leases."""


class Succession:
    def __init__(self, failover: "Failover") -> None:
        self._failover = failover
        self._pair = failover.pair
        self._broker = failover.pair.broker
        self._clock = self._broker.clock
        self._looked_at = self._offered_at = float("-inf")

    # --- taking ----------------------------------------------------------------------------------------------------

    async def promote(self, *, accept_loss: bool, pinned: bool) -> str:
        """An operator, or a master that stops, wants this broker to reign.  ReplicationError if it should not."""
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
        if register is not None and register.holder != node.record.replica:
            failover.was_handed = await self._take_over(register)
        try:
            opened = await failover.stand("order", ordered=True, pinned=pinned, accept_loss=accept_loss)
        finally:
            failover.was_handed = False
        if not opened:
            raise ReplicationError(
                "not all in-sync replicas could be heard in time and they may hold acknowledged messages, so nothing "
                "was changed: start them, or use --accept-loss"
            )
        await self._pair.until_open(failover.lease.seconds)
        return f"{self._broker.address} is the master now, epoch {node.record.promise.number}"

    async def _take_over(self, register: Register) -> bool:
        """Whether the holder has handed over; else its lease has ended, or it is dead.  ReplicationError if neither."""
        failover = self._failover
        try:
            if await self._pair.demote_master(False):
                return True
        except ReplicationError as error:
            log.warning("%s; its lease is waited for", error)
        deadline = self._clock.monotonic() + 2 * failover.lease.seconds + 1
        while failover.coordinator.holder is not None and not failover.holder_is_dead:
            if self._clock.monotonic() >= deadline:
                raise ReplicationError(f"the master {register.holder} neither hands over nor loses its lease")
            await asyncio.sleep(PAUSE)
        return False

    # --- giving ----------------------------------------------------------------------------------------------------

    async def hand_over(self, why: str) -> bool:
        """Gives the reign to the best in-sync member; False if there is none, or none took it."""
        register = self._failover.coordinator.register
        if not self._pair.node.is_open or register is None or register.paused:
            return False
        found = sorted(await self._failover.candidates(), key=lambda one: one.order, reverse=True)
        for one in found:
            if one.priority != NEVER and await self._hand_to(one, why):
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
        """A master whose disk is full or whose log is poisoned hands over; so does one to whom another is preferred."""
        failover = self._failover
        if now < self._looked_at + failover.lease.seconds / 2:
            return
        self._looked_at = now
        register, health = failover.coordinator.register, self._broker.store.health
        if register is None or register.paused or failover.lease.has_lapsed:
            return
        if not health.writable:
            await self.hand_over(f"the log can't be written ({health.reason})")
        elif not (register.pinned or failover.fence.wants_copies) and len(register.in_sync) > 1:
            better = preferred(failover.priority, await failover.candidates())
            if better is not None and now >= self._offered_at + AGAIN_LEASES * failover.lease.seconds:
                self._offered_at = now
                await self._hand_to(better, f"{better.replica} has the higher haPriority {better.priority}")

    async def pause(self, paused: bool) -> str:
        """No election until it is resumed: kept in the register, so that it holds for everybody."""
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

    # --- etcd away --------------------------------------------------------------------------------------------------

    async def vouched(self) -> float:
        """Until when every in-sync member, and whoever may have become one, has vouched for this master."""
        node, seconds = self._pair.node, self._failover.lease.seconds
        if node.master is None or (register := node.master.state.register) is None:
            return float("-inf")
        proposed = node.master.state.proposed
        needed = {*register.in_sync, *(proposed.in_sync if proposed is not None else ())} - {node.record.replica}
        sent_at = self._clock.monotonic()
        ext = {"replica": node.record.replica, "epoch": str(register.epoch)}

        async def ask(replica: str) -> bool:
            command = Command(PairCode.VOUCH, dict(ext))
            try:
                reply = await self._broker.peer_client.invoke(self._failover.address_of(replica), command, seconds / 4)
            except (RemotingError, CodecError):
                return False
            return reply.code == ResponseCode.SUCCESS

        said = await asyncio.gather(*(ask(one) for one in needed))
        return sent_at + seconds * (1 - MARGIN_SHARE) if all(said) else float("-inf")

    def vouch(self, replica: str, epoch: int) -> None:
        """The master asks for our word not to stand for a lease.  ReplicationError if it can't be given."""
        failover, register = self._failover, self._pair.node.register
        if not failover.coordinator.is_away:
            raise ReplicationError("etcd answers here")
        followed = register is not None and (register.holder, register.epoch) == (replica, epoch)
        if not followed or not self._pair.node.is_following:
            raise ReplicationError("this broker does not follow that master")
        until = self._clock.monotonic() + failover.lease.seconds
        failover.vouches_until = max(failover.vouches_until, until)
