"""What a broker tells its name servers, and when it only asks."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tandemq.broker import registration
from tandemq.broker.registration import Identity, Registered, Registration
from tandemq.codec.bodies import data_version_json
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.register import WRAPPED_SINCE, decode_registration
from tandemq.model.topic import TopicConfig
from tandemq.testing.broker_parts import BrokerParts
from tandemq.testing.waiting import until

TOPICS = 1200
FULL, QUERY, LIST = RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION, RequestCode.GET_KVLIST_BY_NAMESPACE


class NameServer:
    """Answers as a name server does and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.known: Any = None
        self.knows_query = True

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        self.asked.append(command)
        if command.code == FULL:
            told = decode_registration(command.body, compressed=False, peer_version=WRAPPED_SINCE)
            self.known = data_version_json(told.version)
            return Command(0)
        if command.code == QUERY and self.knows_query:
            same = bytes(command.body) == registration.fastjson.dumps(self.known)
            return Command(0, {"changed": "false" if same else "true"})
        if command.code == LIST:
            return Command(0, {}, b'{"table":{"ordered":"a:4"}}')
        return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    @property
    def codes(self) -> list[int]:
        return [command.code for command in self.asked]

    @property
    def sizes(self) -> list[int]:
        bodies = [command.body for command in self.asked if command.code == FULL]
        return [len(decode_registration(body, compressed=False, peer_version=WRAPPED_SINCE).topics) for body in bodies]


class Bench:
    """A broker's registration whose periods end when the test says so."""

    def __init__(self, topics: int = TOPICS, broker_id: int = 0) -> None:
        self.parts = BrokerParts()
        self.parts.live.broker = dataclasses.replace(self.parts.live.broker, namesrv_addr="a:1")
        self.parts.topics.put_all(TopicConfig(name=f"T{number}") for number in range(topics))
        self.server = NameServer()
        self.heard: list[Registered] = []
        identity = Identity("c", "b", broker_id, "127.0.0.1:1", "127.0.0.1:2")
        client: Any = self.server
        self.registration = Registration(
            client, self.parts.topics, self.parts.live, identity, on_registered=self.heard.append
        )
        self.periods: asyncio.Queue[None] = asyncio.Queue()
        self.pauses = 0
        self.registration._pause = self._pause  # type: ignore[method-assign]

    async def _pause(self, server: Any, seconds: float) -> None:
        self.pauses += 1
        period, woken = asyncio.ensure_future(self.periods.get()), asyncio.ensure_future(server.wake.wait())
        await asyncio.wait((period, woken), return_when=asyncio.FIRST_COMPLETED)
        if period.done():
            server.is_due = True
            server.periods += 1
        period.cancel()
        woken.cancel()

    async def period(self) -> None:
        before = self.pauses
        self.periods.put_nowait(None)
        await until(lambda: self.pauses > before, "the period's registration")


def story(tell: Callable[[Bench], Any], **options: int) -> Bench:
    async def run() -> Bench:
        bench = Bench(**options)
        bench.registration.start()
        await until(lambda: bench.pauses == 1, "the first registration")
        await tell(bench)
        for task in bench.registration._tasks:
            task.cancel()
        await asyncio.gather(*bench.registration._tasks, return_exceptions=True)
        return bench

    return asyncio.run(run())


def test_a_large_table_is_not_told_again_while_the_name_server_has_its_version() -> None:
    async def tell(bench: Bench) -> None:
        for _ in range(3):
            await bench.period()

    bench = story(tell)
    assert bench.server.codes == [FULL, *(QUERY, LIST) * 3]
    assert bench.server.sizes[0] >= TOPICS
    assert bench.heard[-1].order_topics == {"ordered"}


def test_one_more_topic_is_told_alone() -> None:
    async def tell(bench: Bench) -> None:
        bench.parts.topics.put(TopicConfig(name="more"))
        bench.registration.topics_changed(["more"])
        await until(lambda: bench.pauses == 2, "the change")
        await bench.period()

    bench = story(tell)
    assert bench.server.sizes[1:] == [1]
    assert bench.server.codes == [FULL, FULL, QUERY, LIST]


@pytest.mark.parametrize("why", ["another version", "unknown request", "small", "slave"])
def test_everything_is_told_where_the_version_does_not_say_enough(why: str) -> None:
    async def tell(bench: Bench) -> None:
        bench.server.knows_query = why != "unknown request"
        if why == "another version":
            bench.server.known = {}
        await bench.period()

    bench = story(tell, topics=10 if why == "small" else TOPICS, broker_id=int(why == "slave"))
    assert len(bench.server.sizes) == 2
    assert bench.server.sizes[0] == bench.server.sizes[1]


def test_now_and_then_everything_is_told_all_the_same() -> None:
    """Somebody may have told the name server to drop a topic of ours."""

    async def tell(bench: Bench) -> None:
        for _ in range(registration.FULL_EVERY):
            await bench.period()

    assert len(story(tell).server.sizes) == 2


def test_who_lost_its_connection_tells_everything() -> None:
    async def tell(bench: Bench) -> None:
        bench.registration.connection_lost("a:1")
        await until(lambda: bench.pauses == 2, "the registration")

    assert story(tell).server.codes == [FULL, FULL]
