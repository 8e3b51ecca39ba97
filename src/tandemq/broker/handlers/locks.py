"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues of ordered consumers."""

import asyncio
from collections.abc import Awaitable, Callable

from tandemq.broker.tables.locks import QueueLocks
from tandemq.clock import Clock
from tandemq.codec import fastjson
from tandemq.codec.bodies import load_request, lock_request_of, queue_json
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import ReplyError
from tandemq.model.topic import QueueRef
from tandemq.remoting.access.needs import SUB, group_need, needs, require, topic_need
from tandemq.remoting.beside import Beside
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler

QUEUES_MAX = 10_000
"""Queues of one request; a client asks for those of a topic on one broker."""
LARGE_BODY_MIN = 32 * 1024
"""Requests of more bytes are read beside the loop and carried out in steps; consumers of 300 queues send less."""
QUEUES_PER_TURN = 500
NAME_LENGTH_MAX = 512
"""Characters of a topic, broker, group or client id: what is locked is kept, so that no name may be longer than one."""


class LockHandlers:
    def __init__(self, locks: QueueLocks, clock: Clock, *, is_slave: Callable[[], bool]) -> None:
        self._locks = locks
        self._clock = clock
        self._is_slave = is_slave
        self._beside = Beside()

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    @needs()
    def lock(self, connection: Connection, command: Command) -> bytes | Awaitable[bytes]:
        if len(command.body) > LARGE_BODY_MIN:
            return self._lock_many(command)
        group, client_id, queues = _named(command, _read(command.body, "lockBatchRequest"), "lockBatchRequest")
        return _granted(command, self._locked(group, client_id, queues))

    async def _lock_many(self, command: Command) -> bytes:
        """Does what `lock` does, a few queues at a time: each has its own lock, so that others may come in between."""
        group, client_id, queues = await self._named_beside(command, "lockBatchRequest")
        granted = list[QueueRef]()
        for start in range(0, len(queues), QUEUES_PER_TURN):
            granted += self._locked(group, client_id, queues[start : start + QUEUES_PER_TURN])
            await asyncio.sleep(0)
        return await self._beside(_granted, command, granted)

    def _locked(self, group: str, client_id: str, queues: list[QueueRef]) -> list[QueueRef]:
        if self._is_slave():
            # A client that has not learned of a promotion would hold a lock here, and another one at the new master.
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "this broker is a slave: ask the master of its group for locks")
        return self._locks.lock(group, client_id, queues, self._clock.monotonic())

    @needs()
    def unlock(self, connection: Connection, command: Command) -> bytes | Awaitable[bytes]:
        if len(command.body) > LARGE_BODY_MIN:
            return self._unlock_many(command)
        group, client_id, queues = _named(command, _read(command.body, "unlockBatchRequest"), "unlockBatchRequest")
        self._locks.unlock(group, client_id, queues)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    async def _unlock_many(self, command: Command) -> bytes:
        group, client_id, queues = await self._named_beside(command, "unlockBatchRequest")
        for start in range(0, len(queues), QUEUES_PER_TURN):
            self._locks.unlock(group, client_id, queues[start : start + QUEUES_PER_TURN])
            await asyncio.sleep(0)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    async def _named_beside(self, command: Command, what: str) -> tuple[str, str, list[QueueRef]]:
        return _named(command, await self._beside(_read, bytes(command.body), what), what)


Wish = tuple[str, str, list[QueueRef], int]
"""Group, client id, queues, and how long the longest name of a queue is."""


def _read(body: bytes | memoryview, what: str) -> Wish:
    group, client_id, queues = lock_request_of(load_request(body, what), QUEUES_MAX)
    longest = max((len(name) for queue in queues for name in (queue.topic, queue.broker_name)), default=0)
    return group, client_id, queues, longest


def _granted(command: Command, granted: list[QueueRef]) -> bytes:
    body = fastjson.dumps({"lockOKMQSet": [queue_json(queue) for queue in granted]})
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)


def _named(command: Command, wish: Wish, what: str) -> tuple[str, str, list[QueueRef]]:
    """Returns group, client id and queues of a request whose caller may consume them."""
    group, client_id, queues, longest = wish
    if max(longest, len(group), len(client_id)) > NAME_LENGTH_MAX:
        raise ReplyError(
            ResponseCode.SYSTEM_ERROR,
            f"{what}: a name of {max(longest, len(group), len(client_id))} characters, the limit is {NAME_LENGTH_MAX}",
        )
    topics = dict.fromkeys(queue.topic for queue in queues)
    require(command, group_need(group, SUB), *(topic_need(topic, SUB) for topic in topics))
    return group, client_id, queues
