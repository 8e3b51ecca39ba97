"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

from typing import Any, cast

import pytest

from tandemq.broker.handlers.locks import LockHandlers
from tandemq.broker.tables.locks import QueueLocks
from tandemq.clock import SystemClock
from tandemq.codec import fastjson
from tandemq.codec.bodies import queue_json
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.errors import ReplyError
from tandemq.model.topic import QueueRef

QUEUE = QueueRef("T", "a", 0)


def request(code: int, client: str) -> Command:
    body = {"consumerGroup": "g", "clientId": client, "mqSet": [queue_json(QUEUE)]}
    return Command(code, None, fastjson.dumps(body), opaque=1)


def locked_by(handlers: LockHandlers, client: str) -> bool:
    reply = handlers.lock(cast(Any, None), request(RequestCode.LOCK_BATCH_MQ, client))
    (frame,) = FrameReader(1 << 20, 1 << 16).feed(reply)
    return bool(fastjson.loads(bytes(decode_command(frame).body))["lockOKMQSet"])


def test_a_queue_has_one_holder_until_it_is_freed() -> None:
    handlers = LockHandlers(QueueLocks(60), SystemClock(), is_slave=lambda: False)
    assert locked_by(handlers, "one")
    assert not locked_by(handlers, "two")
    handlers.unlock(cast(Any, None), request(RequestCode.UNLOCK_BATCH_MQ, "one"))
    assert locked_by(handlers, "two")


def test_a_slave_grants_no_locks() -> None:
    handlers = LockHandlers(QueueLocks(60), SystemClock(), is_slave=lambda: True)
    with pytest.raises(ReplyError, match="slave"):
        locked_by(handlers, "one")
