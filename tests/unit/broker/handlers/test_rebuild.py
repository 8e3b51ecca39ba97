"""A rebuild of the views by request: begun once, told how far it is, given up before the store closes."""

import asyncio
from typing import Any

import msgspec
import pytest

from tandemq.broker.handlers.rebuild import RebuildHandlers
from tandemq.codec.codes import OperatorCode
from tandemq.codec.command import Command
from tandemq.errors import StoreError
from tandemq.testing.broker_parts import BrokerParts, FakeConnection, decoded

BEGIN, STATUS = OperatorCode.REBUILD_VIEWS, OperatorCode.REBUILD_STATUS


class Rebuilds:
    def __init__(self) -> None:
        self.parts = BrokerParts()
        self.handlers = RebuildHandlers(self.parts.store, self.parts.clock)
        self.connection: Any = FakeConnection()

    async def begin(self) -> dict[str, Any]:
        return self._read(await self.handlers.begin(self.connection, Command(BEGIN)))

    def status(self) -> dict[str, Any]:
        return self._read(self.handlers.show(self.connection, Command(STATUS)))

    def _read(self, reply: bytes) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(decoded(reply)[0].body)
        return found

    async def ended(self) -> None:
        assert self.handlers._task is not None
        await asyncio.wait([self.handlers._task])


def test_it_is_told_how_far_it_is_until_it_is_done() -> None:
    async def story() -> None:
        rebuilds = Rebuilds()
        assert rebuilds.status() == {"phase": "none", "running": False, "error": ""}
        rebuilds.parts.topic("T")
        for number in range(20):
            rebuilds.parts.send("T", str(number).encode())
        await rebuilds.parts.settle()
        begun = await rebuilds.begin()
        assert begun["running"]
        with pytest.raises(StoreError):
            await rebuilds.begin()
        await rebuilds.ended()
        done = rebuilds.status()
        assert (done["running"], done["error"], done["queueEntries"]) == (False, "", 20)
        assert [message.body for message in rebuilds.parts.read("T")][:2] == [b"0", b"1"]

    asyncio.run(story())


def test_what_went_wrong_is_told_until_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        rebuilds = Rebuilds()
        rebuild = rebuilds.parts.store.rebuild_views()

        def steps() -> Any:
            def fail() -> None:
                raise OSError("no space left")

            yield fail

        monkeypatch.setattr(rebuild, "steps", steps)
        await rebuilds.handlers._run(rebuild)
        assert rebuilds.handlers._error == "no space left"

    asyncio.run(story())


def test_a_stop_gives_it_up() -> None:
    async def story() -> None:
        rebuilds = Rebuilds()
        await rebuilds.handlers.stop()
        await rebuilds.begin()
        await rebuilds.handlers.stop()
        assert not rebuilds.status()["running"]

    asyncio.run(story())
