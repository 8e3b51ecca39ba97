"""Both sides of an orderly hand-over: a slave asks its master to step down, a master does."""

from typing import Final

from tandemq.broker.pair.core import ASK_SECONDS, LOOK_SECONDS, PairCore
from tandemq.broker.pair.master_finder import MasterFinder
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import RemotingError, ReplicationError, ReplyError
from tandemq.replication.metadata import PairCode, ask_ha_info
from tandemq.replication.slave_state import SlaveState

DRAIN_SECONDS: Final = 10.0
"""A demoted master waits this long for its slaves to have everything."""
ANSWER_SECONDS: Final = 1.0
"""For sends that a master accepted before its demotion to get their copies."""
TELL_SECONDS: Final = 1.0
"""For slaves to take the last changes of the tables, before a stop or a hand-over."""


class HandingOver:
    """Nothing that was accepted is lost by it: slaves get everything before the master's role ends."""

    def __init__(self, core: PairCore, finder: MasterFinder) -> None:
        self._core = core
        self._finder = finder
        self._broker = core.broker

    async def ask_master(self, accept_loss: bool) -> str:
        """Asks the master we follow to hand over; its identity if it did, empty if it can't be reached."""
        core, broker = self._core, self._broker
        slave = core.node.slave
        if slave is None or not core.node.is_following or not isinstance(slave.state, SlaveState):
            return ""
        master, address = slave.state.master, self._finder.address
        ext = {"brokerId": str(core.live.broker.broker_id)}
        if core.node.register is not None:
            ext["epoch"] = str(core.node.register.epoch)
        seconds = DRAIN_SECONDS + ASK_SECONDS
        try:
            info = await ask_ha_info(broker.asking_client, address, LOOK_SECONDS)
            if info.get("tandemqNow", "").isdecimal():
                ext["expiresAt"] = str(int(info["tandemqNow"]) + int(seconds * 1000))
            reply = await broker.peer_client.invoke(address, Command(PairCode.DEMOTE, ext), seconds)
            reply.raise_for_code(ResponseCode.SUCCESS)
        except (RemotingError, ReplyError) as error:
            if not accept_loss:
                text = f"the master at {address} did not hand over: {error}; or use --accept-loss"
                raise ReplicationError(text) from error
            return ""
        return master

    async def step_down(self, slave_id: int) -> str:
        """Hands over: no more writes, slaves get everything, then this node follows whoever reigns."""
        core, broker = self._core, self._broker
        async with core.changing:
            if not broker.is_master or core.node.master is None:
                return f"{broker.address} is a slave"
            reason = "this master is being demoted, send to its successor"
            await broker.rest_services()
            broker.forwarder.expect_hand_over()
            # What was accepted gets the answer that it waits for; what comes from now on waits for the successor.
            broker.writer.gate.refuse(reason)
            await broker.writer.drained(ANSWER_SECONDS)
            await broker.forbid_writes(reason)
            try:
                await core.node.drained(DRAIN_SECONDS)
            except BaseException:
                if core.node.is_open:
                    broker.allow_writes()
                raise
            await core.server.told(TELL_SECONDS, stopping=False)
            if core.failover is not None:
                core.failover.hands_over()
            else:
                core.slave_id = slave_id or core.slave_id
            core.node.master.order(0, "the operator demotes it")
        return f"{broker.address} steps down and follows the next master"
