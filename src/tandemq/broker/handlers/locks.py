"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues of ordered consumers."""

from collections.abc import Callable

from tandemq.broker.tables.locks import QueueLocks
from tandemq.clock import Clock
from tandemq.codec import fastjson
from tandemq.codec.bodies import load_request, lock_request_of, queue_json
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import ReplyError
from tandemq.model.topic import QueueRef
from tandemq.remoting.access.needs import SUB, group_need, needs, require, topic_need
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler

QUEUES_MAX = 10_000
"""Queues of one request; a client asks for those of a topic on one broker."""
NAME_LENGTH_MAX = 512
"""Characters of a topic, broker, group or client id: what is locked is kept, so that no name may be longer than one."""


class LockHandlers:
    def __init__(self, locks: QueueLocks, clock: Clock, *, is_slave: Callable[[], bool]) -> None:
        self._locks = locks
        self._clock = clock
        self._is_slave = is_slave

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    @needs()
    def lock(self, connection: Connection, command: Command) -> bytes:
        group, client_id, queues = _named(command, "lockBatchRequest")
        if self._is_slave():
            # A client that has not learned of a promotion would hold a lock here, and another one at the new master.
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "this broker is a slave: ask the master of its group for locks")
        granted = self._locks.lock(group, client_id, queues, self._clock.monotonic())
        body = fastjson.dumps({"lockOKMQSet": [queue_json(queue) for queue in granted]})
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    @needs()
    def unlock(self, connection: Connection, command: Command) -> bytes:
        group, client_id, queues = _named(command, "unlockBatchRequest")
        self._locks.unlock(group, client_id, queues)
        return encode_response(command.opaque, ResponseCode.SUCCESS)


def _named(command: Command, what: str) -> tuple[str, str, list[QueueRef]]:
    """Returns group, client id and queues of a request whose caller may consume them."""
    group, client_id, queues = lock_request_of(load_request(command.body, what), QUEUES_MAX)
    longest = max((len(name) for queue in queues for name in (queue.topic, queue.broker_name)), default=0)
    if max(longest, len(group), len(client_id)) > NAME_LENGTH_MAX:
        raise ReplyError(
            ResponseCode.SYSTEM_ERROR,
            f"{what}: a name of {max(longest, len(group), len(client_id))} characters, the limit is {NAME_LENGTH_MAX}",
        )
    topics = dict.fromkeys(queue.topic for queue in queues)
    require(command, group_need(group, SUB), *(topic_need(topic, SUB) for topic in topics))
    return group, client_id, queues
