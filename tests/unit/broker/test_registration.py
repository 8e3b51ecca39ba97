"""What name servers are told, and when."""

import asyncio

import pytest
from tests.unit.client.fake_cluster import on_loop, turns

from tandemq.broker import registration
from tandemq.broker.config import BrokerConfig
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.registration import Identity, Registered, Registration
from tandemq.broker.tables.topics import TopicTable
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import ConnectFailed
from tandemq.model.topic import TopicConfig
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.store.config import StoreConfig
from tandemq.testing.waiting import until

SERVERS = ("ns1:1", "ns2:1")
REGISTER, UNREGISTER = int(RequestCode.REGISTER_BROKER), int(RequestCode.UNREGISTER_BROKER)


class FakeClient:
    """Name servers that take everything, but for those that are away or hang."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, str]] = []
        """(name server, code, broker id) of every request that arrived."""
        self.away: set[str] = set()
        self.hung: set[str] = set()

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        if address in self.away:
            raise ConnectFailed(f"{address}: refused")
        self.told.append((address, command.code, command.ext["brokerId"]))
        if address in self.hung:
            await asyncio.Event().wait()
        return Command(0, {"masterAddr": "m:1", "haServerAddr": "m:2"}, b'{"table":{"ordered":"a:1"}}')


class Scene:
    def __init__(self) -> None:
        self.client = FakeClient()
        self.answers: list[Registered] = []
        self.topics = TopicTable(lambda: 1, auto_create=True, topics_max=100)
        config = BrokerConfig(broker_name="a", namesrv_addr=";".join(SERVERS))
        self.live = LiveConfig(config, StoreConfig(), RemotingConfig(), ReplicationConfig(), lambda: 1)
        self.registration = Registration(
            self.client,  # type: ignore[arg-type]
            self.topics,
            self.live,
            identity(0),
            on_registered=self.answers.append,
        )

    def ids(self, server: str = SERVERS[0]) -> list[str]:
        return [broker_id for where, code, broker_id in self.client.told if (where, code) == (server, REGISTER)]


def identity(broker_id: int) -> Identity:
    return Identity("c", "a", broker_id, "here:1", "here:2")


@on_loop
async def test_every_name_server_is_told_and_what_it_answers_is_handed_on() -> None:
    scene = Scene()
    scene.registration.start()
    assert await scene.registration.wait_registered(10)
    assert [where for where, _, _ in scene.client.told] == list(SERVERS)
    assert scene.answers[0] == Registered(SERVERS[0], "m:1", "m:2", frozenset({"ordered"}))
    await scene.registration.stop()
    assert [code for _, code, _ in scene.client.told[2:]] == [UNREGISTER, UNREGISTER]


@on_loop
async def test_one_that_is_away_delays_nobody_and_hears_of_it_when_it_is_back() -> None:
    scene = Scene()
    scene.client.away.add(SERVERS[0])
    scene.registration.start()
    await until(lambda: scene.registration.registered_with == [SERVERS[1]], "the other one")
    scene.client.away.clear()
    await until(lambda: scene.registration.registered_with == list(SERVERS), "both")
    await scene.registration.stop()


@on_loop
async def test_a_changed_topic_is_told_in_this_turn() -> None:
    scene = Scene()
    scene.registration.start()
    await scene.registration.wait_registered(10)
    before = len(scene.ids())
    scene.topics.put(TopicConfig(name="T"))
    scene.registration.topics_changed(["T", "unknown"])
    await turns()
    assert len(scene.ids()) == before + 1
    await scene.registration.stop()


@on_loop
async def test_a_new_role_replaces_the_old_one_without_a_moment_in_between() -> None:
    """Nothing is unregistered first, so a name server that hangs holds up no promotion."""
    scene = Scene()
    scene.registration.start()
    await scene.registration.wait_registered(10)
    scene.client.hung.add(SERVERS[1])
    await asyncio.wait_for(scene.registration.change(identity(7), hold=False), 5)
    await turns()
    assert scene.ids() == ["0", "7"]
    assert UNREGISTER not in [code for _, code, _ in scene.client.told]
    scene.client.hung.clear()
    await scene.registration.stop()


@pytest.mark.parametrize("released", [True, False])
@on_loop
async def test_a_former_master_keeps_its_place_until_its_successor_is_known(
    released: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "HOLD_SECONDS_MAX", 60.0 if released else 0.02)
    scene = Scene()
    scene.registration.start()
    await scene.registration.wait_registered(10)
    await scene.registration.change(identity(1), hold=True)
    scene.registration.announce()
    scene.registration.connection_lost(SERVERS[0])
    await turns()
    assert scene.ids() == ["0"], "a route without a master would make clients fail"
    if released:
        scene.registration.release()
    await until(lambda: scene.ids()[-1] == "1", "the new role")
    await scene.registration.change(identity(0), hold=False)
    await until(lambda: scene.ids()[-1] == "0", "the next reign is told at once")
    await scene.registration.stop()
