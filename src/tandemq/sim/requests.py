"""Requests from broker to broker in a simulation: they are carried out, or not, and answered, or not."""

import asyncio
from typing import Protocol, cast

from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import CoordinatorError, RemotingError, ReplicationError, ReplyError, RequestTimeout
from tandemq.sim.loop_node import LoopNode


class Server(Protocol):
    """Whoever answers requests."""

    async def serve(self, command: Command) -> Command: ...


class SimClient:
    """Looks like a `RemotingClient` to production's code."""

    def __init__(self, node: LoopNode) -> None:
        self._node = node

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        node = self._node
        other = node.peer_at(address)
        waiter: asyncio.Future[Command] = node.loop.create_future()
        if other is not None:
            self._send(other, command, waiter)
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except TimeoutError:
            raise RequestTimeout(f"{address} did not answer within {timeout:g} s") from None

    def _send(self, other: LoopNode, command: Command, waiter: "asyncio.Future[Command]") -> None:
        node = self._node
        events, random = node.events, node.random

        def settle(reply: Command | None, error: RemotingError | None) -> None:
            def arrive() -> None:
                if not waiter.done() and node.reaches(other):
                    if error is not None:
                        waiter.set_exception(error)
                    else:
                        waiter.set_result(cast("Command", reply))

            events.after(random.uniform(0.0002, 0.002), arrive)

        async def answer() -> None:
            try:
                reply = await cast("Server", other).serve(command)
            except ReplyError as error:
                reply = Command(error.code, remark=str(error))
            except (ReplicationError, CoordinatorError) as error:
                reply = Command(ResponseCode.SYSTEM_ERROR, remark=str(error))
            settle(reply, None)

        def arrive() -> None:
            if not node.reaches(other):
                return
            if other.alive:
                other.begin(answer, "request")
            elif other.machine_runs:
                settle(None, RemotingError(f"{other.address}: connection refused"))

        events.after(random.uniform(0.0002, 0.002), arrive)
