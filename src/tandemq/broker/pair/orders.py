"""Orders of operators and of other brokers about the role of this one: one at a time, to its end, or not at all."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.core import PairCore
from tandemq.broker.pair.facts import PairFacts
from tandemq.broker.pair.handing_over import HandingOver
from tandemq.broker.pair.promotion import Promotion
from tandemq.broker.pair.rivals import Rivals
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.codec.ha_register import GROUP_HOME
from tandemq.errors import CoordinatorError, ReplicationError
from tandemq.remoting.access.needs import GET, UPDATE, needs, on_cluster
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.replication.epochs import place_of
from tandemq.replication.metadata import PairCode

log = logging.getLogger(__name__)


class Orders:
    """Checks an order and runs it as a task of its own: a lost connection leaves nothing half done."""

    def __init__(
        self, core: PairCore, rivals: Rivals, promotion: Promotion, handing_over: HandingOver, facts: PairFacts
    ) -> None:
        self._core = core
        self._rivals = rivals
        self._promotion = promotion
        self._handing_over = handing_over
        self._facts = facts
        self._running: asyncio.Task[str] | None = None
        """The promotion or demotion under way: it goes on whether or not who ordered it is still there."""
        self._name = ""

    # --- carrying out -----------------------------------------------------------------------------------------------

    async def promote(self, role: BrokerRole, *, accept_loss: bool, pinned: bool = True) -> str:
        """Makes this slave the master; what was done, in words.  ReplicationError if it should not be.

        `pinned`: with a coordinator, a preferred master does not take the reign back by itself.
        """
        if self._core.failover is not None:
            succession = self._core.failover.succession
            return await self._one("promote", lambda: succession.promote(accept_loss=accept_loss, pinned=pinned))
        return await self._one("promote", lambda: self._promotion.promote(role, accept_loss))

    async def demote(self, slave_id: int = 0) -> str:
        """Hands over; what was done, in words."""
        return await self._one("demote", lambda: self._handing_over.step_down(slave_id))

    async def _one(self, name: str, work: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """Runs one order at a time, to its end; it may be repeated."""
        running = self._running
        if running is None or running.done():
            running = self._running = self._core.spawn(work(), name)
            self._name = name
            running.add_done_callback(_log_failure)
        elif self._name != name:
            raise ReplicationError(f"this broker is busy with another order ({self._name}); try again in a moment")
        return await asyncio.shield(running)

    def _check(self, ext: Mapping[str, str]) -> None:
        """Checks until when an order is meant, by this broker's own clock, and for which epoch."""
        expires = ext.get("expiresAt", "")
        late = self._core.broker.clock.wall_ms() - int(expires) if expires.isdecimal() else 0
        if late > 0:
            raise ReplicationError(
                f"this order expired {late} ms ago and is not carried out; give it again if it is meant"
            )
        meant, register = ext.get("epoch", ""), self._core.node.register
        if meant.isdecimal() and register is not None and int(meant) != register.epoch:
            raise ReplicationError(
                f"this order means epoch {meant}, the group is in epoch {register.epoch} now: see `tandemq ha status`"
            )

    def _forget(self, name: str, *, accept_loss: bool) -> str:
        """Takes a replica out of the group for good; `name` is its identity, or an address that names exactly one."""
        node = self._core.node
        register, master = node.register, node.master
        if not self._core.broker.is_master or master is None:
            holder = f": ask {register.holder}" if register is not None else ""
            raise ReplicationError(f"this broker is no master, and only one that reigns can forget a replica{holder}")
        if register is None:
            known = sorted(node.record.members)
            found = [one for one in known if name in (one, place_of(one))]
        else:
            found = [m.replica for m in (*register.members, *register.joining) if name in (m.replica, m.address)]
            known = sorted(register.everybody)
        if len(found) != 1:
            many = f"names {len(found)} replicas: give the identity of one" if found else "is not in the register"
            raise ReplicationError(f"replica={name!r} {many}; known are {', '.join(known)}")
        refusal = master.forget(found[0], accept_loss=accept_loss)
        if refusal:
            raise ReplicationError(refusal)
        return f"the group has forgotten {found[0]}"

    # --- requests ---------------------------------------------------------------------------------------------------

    def handlers(self) -> dict[int, Handler]:
        return {
            PairCode.WAIT_FOR_METADATA: self._core.server.wait,
            PairCode.PROMOTE: self._on_promote,
            PairCode.DEMOTE: self._on_demote,
            PairCode.ANNOUNCE: self._on_announce,
            PairCode.HA_DETAIL: self._on_detail,
            PairCode.FORGET: self._on_forget,
            PairCode.PAUSE: self._on_pause,
            PairCode.MOVE_REGISTER: self._on_move,
        }

    @needs(on_cluster(UPDATE), key=True)
    async def _on_promote(self, connection: Connection, command: Command) -> bytes:
        role = BrokerRole(command.ext.get("role", BrokerRole.SYNC_MASTER.value))
        self._check(command.ext)
        accept_loss = "true" in (command.ext.get("acceptLoss"), command.ext.get("force"))
        text = await self.promote(role, accept_loss=accept_loss, pinned=command.ext.get("handOver") != "true")
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    @needs(on_cluster(UPDATE), key=True)
    async def _on_demote(self, connection: Connection, command: Command) -> bytes:
        self._check(command.ext)
        text = await self.demote(int(command.ext.get("brokerId", "0")))
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    @needs(on_cluster(UPDATE), key=True)
    def _on_forget(self, connection: Connection, command: Command) -> bytes:
        self._check(command.ext)
        text = self._forget(command.ext.get("replica", ""), accept_loss=command.ext.get("acceptLoss") == "true")
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    @needs(on_cluster(UPDATE), key=True)
    async def _on_pause(self, connection: Connection, command: Command) -> bytes:
        self._check(command.ext)
        if self._core.failover is None:
            raise ReplicationError("this group has no coordinator (haCoordinator): nobody is elected anyway")
        try:
            text = await self._core.failover.succession.pause(command.ext.get("paused") == "true")
        except CoordinatorError as error:
            raise ReplicationError(str(error)) from error
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    @needs(on_cluster(UPDATE), key=True)
    async def _on_move(self, connection: Connection, command: Command) -> bytes:
        self._check(command.ext)
        if self._core.failover is None:
            raise ReplicationError("this broker has no coordinator: set haCoordinator and restart it first")
        move = self._core.failover.move
        try:
            if command.ext.get("to") == GROUP_HOME:
                text = await move.to_group()
            else:
                text = await move.to_coordinator(accept_loss=command.ext.get("acceptLoss") == "true")
        except CoordinatorError as error:
            raise ReplicationError(str(error)) from error
        return encode_response(command.opaque, ResponseCode.SUCCESS, text)

    @needs(on_cluster(UPDATE), key=True)
    async def _on_announce(self, connection: Connection, command: Command) -> bytes:
        group = self._core.node.group
        if command.ext.get("tandemqGroup", group) != group:
            return encode_response(command.opaque, ResponseCode.SUCCESS, "another group")
        await self._rivals.heard(command.ext)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    @needs(on_cluster(GET))
    def _on_detail(self, connection: Connection, command: Command) -> bytes:
        body = msgspec.json.encode(self._facts.detail())
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)


def _log_failure(task: "asyncio.Task[str]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("%s was not carried out: %s", task.get_name(), error)
