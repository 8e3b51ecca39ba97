"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues of ordered consumers."""

from tandemq.broker.locks import QueueLocks
from tandemq.clock import Clock
from tandemq.codec import fastjson
from tandemq.codec.bodies import load_object, lock_request_of, queue_json
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler


class LockHandlers:
    def __init__(self, locks: QueueLocks, clock: Clock) -> None:
        self._locks = locks
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, connection: Connection, command: Command) -> bytes:
        group, client_id, queues = lock_request_of(load_object(command.body, "lockBatchRequest"))
        granted = self._locks.lock(group, client_id, queues, self._clock.monotonic())
        body = fastjson.dumps({"lockOKMQSet": [queue_json(queue) for queue in granted]})
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    def unlock(self, connection: Connection, command: Command) -> bytes:
        group, client_id, queues = lock_request_of(load_object(command.body, "unlockBatchRequest"))
        self._locks.unlock(group, client_id, queues)
        return encode_response(command.opaque, ResponseCode.SUCCESS)
