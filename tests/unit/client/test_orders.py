"""An order says until when and for which epoch it is meant; a refusal is an error with the broker's reason."""

import asyncio
import json
from typing import Any

import pytest

from tandemq.client.orders import ORDER_MS, order, promote
from tandemq.codec.codes import OperatorCode, RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.replication.metadata import PairCode


class FakeSession:
    def __init__(self, detail: dict[str, Any] | None, answer: Command, now: str = "") -> None:
        self.detail = detail
        self.now = now
        self.answer = answer
        self.asked: list[tuple[int, dict[str, str]]] = []

    async def invoke(self, address: str, code: int, ext: dict[str, str], *, timeout_ms: int) -> Command:
        if code == OperatorCode.HA_DETAIL:
            if self.detail is None:
                return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            return Command(ResponseCode.SUCCESS, {}, json.dumps(self.detail).encode())
        if code == RequestCode.EXCHANGE_BROKER_HA_INFO:
            return Command(ResponseCode.SUCCESS, {"tandemqNow": self.now} if self.now else {})
        self.asked.append((code, ext))
        return self.answer


def test_a_promotion_carries_the_brokers_clock_and_epoch() -> None:
    session: Any = FakeSession({"register": {"epoch": 4}}, Command(ResponseCode.SUCCESS, remark="it is"), "1000")
    assert asyncio.run(promote(session, "h:1", accept_loss=True)) == "it is"
    fields = {"role": "SYNC_MASTER", "acceptLoss": "true", "expiresAt": str(1000 + ORDER_MS), "epoch": "4"}
    assert session.asked == [(PairCode.PROMOTE, fields)]


def test_a_broker_that_tells_no_clock_gets_the_bare_order() -> None:
    session: Any = FakeSession(None, Command(ResponseCode.SUCCESS))
    assert asyncio.run(order(session, "h:1", OperatorCode.DEMOTE, {})) == "done"
    assert session.asked == [(PairCode.DEMOTE, {})]


def test_a_refusal_is_an_error_with_the_reason() -> None:
    session: Any = FakeSession({}, Command(ResponseCode.SYSTEM_ERROR, remark="one can't be heard"))
    with pytest.raises(ReplyError, match="can't be heard"):
        asyncio.run(promote(session, "h:1"))
