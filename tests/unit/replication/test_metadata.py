"""Who tells its tables, and what a slave does with them."""

import asyncio
from typing import Any

import pytest

from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.errors import RemotingError
from tandemq.replication import metadata
from tandemq.replication.metadata import LOG_END, MetadataServer, PairCode, ask_ha_info, log_end_of
from tandemq.testing.broker_parts import FakeConnection


class Tables:
    """Two tables that have changed since anybody looked."""

    def marks(self) -> dict[str, str]:
        return {"topics": "1", "offsets": "2"}


async def answer(server: MetadataServer) -> Command:
    connection: Any = FakeConnection()
    connection.is_open = True
    data = await server.wait(connection, Command(PairCode.WAIT_FOR_METADATA, {}))
    return decode_command(next(iter(FrameReader().feed(data))))


def server() -> MetadataServer:
    tables: Any = Tables()
    return MetadataServer(tables)


def test_a_broker_that_does_not_reign_yet_tells_no_tables(monkeypatch: Any) -> None:
    """Else a slave would take the old tables of one that is about to ask it for its own."""
    monkeypatch.setattr(metadata, "PARKED_SECONDS", 0.01)
    reply = asyncio.run(answer(server()))
    assert reply.code == ResponseCode.SYSTEM_BUSY


def test_who_begins_to_reign_answers_at_once_those_who_wait() -> None:
    async def story() -> None:
        one = server()
        waiting = asyncio.ensure_future(answer(one))
        await asyncio.sleep(0)
        assert not waiting.done()
        one.is_open = True
        one.changed()
        reply = await waiting
        assert reply.code == ResponseCode.SUCCESS
        assert reply.ext == {"topics": "1", "offsets": "2"}

    asyncio.run(story())


def test_a_position_is_a_number_or_none() -> None:
    assert log_end_of(Command(0, {LOG_END: "123"})) == 123
    for ext in ({}, {LOG_END: ""}, {LOG_END: "-1"}, {LOG_END: "x"}):
        assert log_end_of(Command(0, ext)) is None


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
def test_a_broker_that_can_not_tell_now_is_not_taken_for_rocketmq(code: int) -> None:
    class Busy:
        async def invoke(self, address: str, command: Command, timeout: float) -> Command:
            return Command(code, {}, remark="the broker is stopping")

    with pytest.raises(RemotingError, match="the broker is stopping"):
        asyncio.run(ask_ha_info(Busy(), "127.0.0.1:1"))  # type: ignore[arg-type]
