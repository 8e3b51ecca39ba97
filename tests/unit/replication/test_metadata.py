"""Who tells its tables, and what a slave does with them."""

import asyncio
from typing import Any

import pytest

from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.errors import RemotingError
from tandemq.replication import metadata
from tandemq.replication.metadata import (
    LOG_END,
    MARK,
    SINCE,
    MetadataFollower,
    MetadataServer,
    PairCode,
    ask_ha_info,
    log_end_of,
)
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


class Master:
    """Answers every question for a table, and keeps the questions."""

    def __init__(self) -> None:
        self.asked: list[Command] = []

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        self.asked.append(command)
        since = command.ext.get(SINCE, "")
        return Command(0, {MARK: "r.7", **({SINCE: since} if since else {})}, b"{}")


class Taking:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.taken: list[tuple[bool, str]] = []

    def held_to(self, table: str) -> str | None:
        return self.taken[-1][1] if self.taken else ""

    def read(self, table: str, body: bytes, is_part: bool) -> bool:
        return is_part

    def take(self, told: bool, position: int | None, mark: str = "") -> None:
        self.taken.append((told, mark))


def follower() -> tuple[MetadataFollower, Master, Taking]:
    client, tables = Master(), Taking()
    return MetadataFollower(client, tables, lambda: None, interval=1.0), client, tables  # type: ignore[arg-type]


def test_a_slave_says_what_it_has_and_takes_the_part_that_changed() -> None:
    async def story() -> None:
        one, client, tables = follower()
        for _ in range(2):
            await one._fetch("a", ["offsets"])
        assert [command.ext for command in client.asked] == [{SINCE: ""}, {SINCE: "r.7"}]
        assert tables.taken == [(False, "r.7"), (True, "r.7")]

    asyncio.run(story())


class RocketMQ:
    """A RocketMQ master whose log grows with every question; a 4 knows nothing of timer messages."""

    def __init__(self, *, is_five: bool) -> None:
        self.asked: list[Command] = []
        self._is_five = is_five

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        self.asked.append(command)
        if command.code == RequestCode.GET_TIMER_CHECK_POINT and not self._is_five:
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, {})
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return Command(0, {}, b'{"table":{"commitLogMaxOffset":"%d"}}' % len(self.asked))
        return Command(0, {}, b"{}")


class Placed(Taking):
    """Keeps where what it is given is true."""

    def __init__(self) -> None:
        self.places: dict[str, int | None] = {}

    def read(self, table: str, body: bytes, is_part: bool) -> Any:
        return table

    def take(self, told: Any, position: int | None, mark: str = "", *, is_of_rocketmq: bool = False) -> None:
        assert is_of_rocketmq
        self.places[told] = position


@pytest.mark.parametrize("is_five", [True, False])
def test_a_rocketmq_master_is_asked_as_its_own_slaves_ask(is_five: bool) -> None:
    """What it has delivered is in its log where that ends afterwards; a 4 is not asked for timer messages in vain."""

    async def story() -> None:
        client, tables = RocketMQ(is_five=is_five), Placed()
        one: Any = MetadataFollower(client, tables, lambda: None, interval=1.0)  # type: ignore[arg-type]
        await one._poll("a")
        assert all(command.ext == {} for command in client.asked)
        told = {**dict.fromkeys(("topics", "groups", "offsets")), "delay": 5}
        assert tables.places == (told | {"timers": len(client.asked)} if is_five else told)

    asyncio.run(story())
