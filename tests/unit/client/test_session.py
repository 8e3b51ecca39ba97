"""One client's link to a cluster."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.fake_cluster import NAMESRV, FakeCluster, ManualClock, on_loop, turns

from tandemq.client.config import ClientConfig
from tandemq.client.producer import Producer
from tandemq.client.session import SETTLING_S, UNREACHABLE_S, Session, _credentials, session_for
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import ConsumerGroupInfo
from tandemq.errors import ClientClosed, ClientError, ConnectionLost, NoRoute, RemotingError, ReplyError
from tandemq.model.message import Message
from tandemq.testing.waiting import until


class Member:
    def __init__(self, group: str = "g", *, consumer: bool = True, all_masters: bool = False) -> None:
        self.group = group
        self.needs_all_masters = all_masters
        self.names = ["T"]
        self._consumer = consumer

    def topics(self) -> list[str]:
        return self.names

    def consumer_info(self) -> ConsumerGroupInfo | None:
        return ConsumerGroupInfo(group=self.group) if self._consumer else None


# routes


@on_loop
async def test_a_route_is_asked_for_once_however_many_wait() -> None:
    cluster = FakeCluster()
    session = cluster.session()
    await asyncio.gather(*(session.route("T") for _ in range(10)))
    await session.route("T")
    assert cluster.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1
    await session.route("T", refresh=True)
    assert cluster.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 2


@on_loop
async def test_whoever_stops_waiting_for_a_route_leaves_it_to_the_others() -> None:
    cluster, gate = FakeCluster(), asyncio.Event()
    answer = cluster.on[RequestCode.GET_ROUTEINFO_BY_TOPIC]

    async def slow(address: str, command: Command) -> Any:
        await gate.wait()
        return answer(address, command)

    cluster.on[RequestCode.GET_ROUTEINFO_BY_TOPIC] = slow
    session = cluster.session()
    first, second = (asyncio.get_running_loop().create_task(session.route("T")) for _ in range(2))
    await turns()
    first.cancel()
    gate.set()
    assert (await second).queues


@on_loop
async def test_an_unknown_topic_is_routed_as_the_template_if_there_is_one() -> None:
    cluster = FakeCluster()
    session = cluster.session()
    with pytest.raises(NoRoute, match="topic create new"):
        await session.publish_queues("new")
    cluster.topics["TBW102"] = 8
    assert len(await session.publish_queues("new")) == 4
    assert await session.subscribe_queues("new") == ()
    cluster.topics["new"] = 2
    await session.route("new", refresh=True)
    assert len(await session.publish_queues("new")) == 2


@on_loop
async def test_a_topic_without_a_master_has_no_queue_to_send_to() -> None:
    cluster = FakeCluster(brokers={"a": {1: "slave:1"}})
    session = cluster.session()
    with pytest.raises(NoRoute, match="no writable queue"):
        await session.publish_queues("T")
    with pytest.raises(NoRoute, match="no master"):
        await session.master("a", "T")
    assert await session.any_address("a", "T") == "slave:1"


@on_loop
async def test_listeners_learn_of_changed_routes_only() -> None:
    cluster = FakeCluster()
    session = cluster.session()
    changed: list[str] = []
    session.on_routes_changed.append(changed.append)
    await session.route("T")
    await session.route("T", refresh=True)
    cluster.topics["T"] = 5
    await session.route("T", refresh=True)
    assert changed == ["T", "T"]
    session.forget_listener(changed.append)


@on_loop
async def test_routes_of_topics_that_no_member_uses_are_forgotten() -> None:
    cluster = FakeCluster(brokers={"a": {0: "a:1"}})
    cluster.topics["other"] = 1
    session = cluster.session()
    member = Member()
    session.join(member)
    await session.route("T")
    await session.route("other")
    await session.refresh_routes()
    assert session.routes.topics() == ("T",)


# name servers


@on_loop
async def test_the_next_name_server_is_asked_within_the_time_of_one_request() -> None:
    cluster = FakeCluster()
    cluster.hung.add("first:1")
    session = Session(ClientConfig(namesrv=f"first:1;{NAMESRV}", api_timeout_ms=40))
    session.remoting = cluster.session().remoting
    session.namesrv.answered("first:1")
    await session.route("T")
    assert session.namesrv.current == NAMESRV
    cluster.dead.add(NAMESRV)
    with pytest.raises(RemotingError, match=r"namesrv:1.*first:1"):
        await session.route("T", refresh=True)


@pytest.mark.parametrize(
    ("secured", "hint"),
    [
        ({}, "does it want TLS"),
        ({"use_tls": True}, "does it want a client certificate"),
        ({"use_tls": True, "tls_cert_file": "c.pem", "tls_key_file": "c.key"}, "check namesrvAddr"),
    ],
)
@on_loop
async def test_a_name_server_that_closes_the_connection_may_want_tls(secured: dict[str, Any], hint: str) -> None:
    cluster = FakeCluster()

    def close(address: str, command: Command) -> Command:
        raise ConnectionLost(f"{address}: closed by the peer")

    cluster.on[RequestCode.GET_ROUTEINFO_BY_TOPIC] = close
    session = cluster.session()
    session.config = ClientConfig(namesrv=NAMESRV, **secured)
    with pytest.raises(RemotingError, match=hint) as told:
        await session.route("T")
    assert str(told.value).count(NAMESRV) == 1


# brokers that move


@on_loop
async def test_a_master_that_can_not_be_reached_is_replaced_by_its_successor() -> None:
    cluster = FakeCluster(brokers={"a": {0: "old:1"}})
    session = cluster.session()
    await session.route("T")
    cluster.brokers["a"] = {0: "new:1"}

    async def ask(address: str) -> str:
        if address == "old:1":
            raise RemotingError("gone")
        return address

    assert await session.ask_master("a", "T", ask) == "new:1"
    assert await session.ask_reader("a", "T", ask) == "new:1"


@pytest.mark.parametrize("error", [RemotingError("gone"), ReplyError(1, "I am a slave")])
@on_loop
async def test_a_master_that_has_not_moved_is_not_asked_twice(error: Exception) -> None:
    cluster = FakeCluster()
    session = cluster.session()
    asked: list[str] = []

    async def ask(address: str) -> str:
        asked.append(address)
        raise error

    with pytest.raises(type(error)):
        await session.ask_master("a", "T", ask)
    assert asked == ["a:1"]


@on_loop
async def test_a_lost_connection_to_a_broker_asks_for_routes_at_once() -> None:
    cluster = FakeCluster()
    session = cluster.session()
    session.join(Member())
    await session.start()
    await session.route("T")
    session._connection_lost("somebody:1")
    await turns()
    assert cluster.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1
    session._connection_lost("a:1")
    await until(lambda: cluster.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) > 2, "the routes, asked for repeatedly")
    await session.close()


@on_loop
async def test_a_master_that_is_lost_or_has_moved_is_told() -> None:
    cluster, clock = FakeCluster(brokers={"a": {0: "a:1", 1: "s:1"}}), ManualClock()
    session = cluster.session(clock=clock)
    lost: list[str] = []
    session.on_master_lost.append(lost.append)
    await session.route("T")
    assert (lost, session.is_settled("a")) == ([], True)
    session._connection_lost("s:1")
    assert lost == []
    session._connection_lost("a:1")
    assert (lost, session.is_settled("a")) == (["a"], False)
    clock.now += SETTLING_S + 1
    assert session.is_settled("a")
    cluster.brokers["a"] = {0: "s:1", 1: "a:1"}
    await session.route("T", refresh=True)
    assert (lost, session.is_settled("a")) == (["a", "a"], False)
    session.forget_listener(lost.append)


@on_loop
async def test_an_address_without_an_answer_is_avoided_for_a_while() -> None:
    clock = ManualClock()
    session = FakeCluster().session(clock=clock)
    session.mark_unreachable("a:1")
    assert not session.reachable("a:1")
    clock.now += UNREACHABLE_S
    assert session.reachable("a:1")


# members


@on_loop
async def test_heartbeats_tell_masters_of_producers_and_everybody_of_consumers() -> None:
    cluster = FakeCluster(brokers={"a": {0: "m:1", 1: "s:1"}})
    session = cluster.session()
    await session.route("T")
    await session.heartbeat()
    assert cluster.count(RequestCode.HEART_BEAT) == 0
    session.join(Member(consumer=False))
    await session.heartbeat()
    session.join(Member("c"))
    await session.heartbeat()
    beats = [address for address, code in cluster.requests if code == RequestCode.HEART_BEAT]
    assert beats == ["m:1", "m:1", "s:1"]


@on_loop
async def test_a_group_is_in_a_session_once_and_leaves_with_a_farewell() -> None:
    cluster = FakeCluster()
    session = cluster.session()
    await session.route("T")
    member = Member()
    session.join(member)
    with pytest.raises(ClientError, match="in this session already"):
        session.join(Member())
    await session.leave(member)
    await session.leave(member)
    assert cluster.count(RequestCode.UNREGISTER_CLIENT) == 1
    session.join(Member())


@on_loop
async def test_a_broker_that_does_not_take_the_farewell_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemq.client.session.FAREWELL_S", 0.01)
    cluster = FakeCluster()
    session = cluster.session()
    await session.route("T")
    member = Member()
    session.join(member)
    cluster.hung.add("a:1")
    await session.leave(member)


@on_loop
async def test_a_member_that_needs_all_masters_gets_brokers_of_topics_it_never_used() -> None:
    cluster = FakeCluster(brokers={"a": {0: "a:1"}, "b": {0: "b:1"}})
    session = cluster.session()
    await session.learn_masters()
    session.join(Member(consumer=False, all_masters=True))
    await session.heartbeat()
    beats = {address for address, code in cluster.requests if code == RequestCode.HEART_BEAT}
    assert beats == {"a:1", "b:1"}
    session._members[0].names = []  # type: ignore[attr-defined]
    await session.refresh_routes()
    assert set(session.routes.groups()) == {"a", "b"}


@on_loop
async def test_pushed_requests_go_to_every_handler_until_one_answers() -> None:
    session = FakeCluster().session()
    seen: list[str] = []

    class Handler:
        def __init__(self, name: str, answer: Command | None) -> None:
            self.name, self.answer = name, answer

        def handle(self, connection: object, command: Command) -> Command | None:
            seen.append(self.name)
            return self.answer

    handlers = [Handler("one", None), Handler("two", Command(0)), Handler("three", None)]
    for handler in handlers:
        session.on_push(40, handler.handle)
    assert session._dispatch(40, None, Command(40)).code == 0
    assert seen == ["one", "two"]
    session.off_push(handlers[1])
    assert session._dispatch(40, None, Command(40)) is None
    assert seen == ["one", "two", "one", "three"]


# life


@on_loop
async def test_a_closed_session_answers_those_who_wait_and_is_not_started_again() -> None:
    cluster = FakeCluster()
    cluster.hung.add(NAMESRV)
    session = cluster.session()
    await session.start()
    await session.start()
    waiting = asyncio.get_running_loop().create_task(session.route("T"))
    await turns()
    await session.close()
    with pytest.raises(ClientClosed):
        await waiting
    with pytest.raises(ClientClosed):
        await session.route("T")
    with pytest.raises(ClientClosed):
        await session.start()


@on_loop
async def test_a_session_brings_its_own_config() -> None:
    session = FakeCluster().session()
    assert session_for(session, None, None) == (session, False)
    with pytest.raises(ClientError, match="not both"):
        session_for(session, None, "a:1")
    own, owned = session_for(None, ClientConfig(send_timeout_ms=5), "b:1")
    assert owned
    assert (own.config.namesrv, own.config.send_timeout_ms) == ("b:1", 5)


def test_credentials_are_given_to_the_connections_which_sign() -> None:
    assert _credentials(ClientConfig()) is None
    found = _credentials(ClientConfig(access_key="a", secret_key="s", security_token="t"))
    assert found is not None
    assert (found.access_key, found.secret_key, found.security_token) == ("a", "s", "t")


@on_loop
async def test_a_filter_is_checked_with_the_brokers_of_its_topic() -> None:
    from tandemq.client.subscription import SQL92, TAG, subscription

    cluster = FakeCluster()
    session = cluster.session()
    await session.check_filter("g", subscription("T", "A", TAG, 1))
    assert cluster.count(RequestCode.CHECK_CLIENT_CONFIG) == 0
    cluster.on[RequestCode.CHECK_CLIENT_CONFIG] = lambda *_: Command(ResponseCode.SYSTEM_ERROR, remark="SQL is off")
    with pytest.raises(ReplyError, match="SQL is off"):
        await session.check_filter("g", subscription("T", "a > 5", SQL92, 1))


def test_a_client_of_another_event_loop_is_refused_at_once() -> None:
    sessions: list[Session] = []

    async def first() -> None:
        sessions.append(FakeCluster().session())
        await sessions[0].start()

    async def second() -> None:
        with pytest.raises(ClientError, match="another event loop"):
            await Producer("shop", session=sessions[0]).send(Message(topic="T", body=b"x"))
        with pytest.raises(ClientError, match="another event loop"):
            await Producer("shop", session=sessions[0]).close()

    asyncio.run(first())
    asyncio.run(second())
    with pytest.raises(ClientError, match="outside an event loop"):
        sessions[0].check_loop("it")
