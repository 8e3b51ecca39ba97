"""The client against servers that misbehave: hang, hang up, refuse, answer nonsense.

Name server and brokers are scripted: a real RemotingServer with handlers that do as the story says.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tandemq.client import (
    Action,
    ClientConfig,
    ConsumeFrom,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
)
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.send_header import send_header_of
from tandemq.errors import NoRoute, RemotingError, SendFailed
from tandemq.formats.record import encode_record
from tandemq.model.route import BrokerGroup, QueueData, TopicRoute
from tandemq.model.topic import QueueRef
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection
from tandemq.remoting.server import RemotingServer
from tandemq.testing.waiting import until

HOST = bytes([127, 0, 0, 1, 0, 0, 0, 1])
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class ScriptedBroker:
    """Stores what it is sent in a list; `answer` may decide otherwise for a send."""

    def __init__(self, name: str, answer: Callable[[Connection, Command], Any] | None = None) -> None:
        self.name = name
        self.answer = answer
        self.sends = 0
        self.stored: list[tuple[str, bytes]] = []
        self.records: list[bytes] = []
        self.committed: dict[str, int] = {}
        self.requests: list[int] = []
        self.members: set[str] = set()
        self.pull_waits = 0
        self.handlers: dict[int, Callable[[Connection, Command], Any]] = {
            **dict.fromkeys(SENDS, self._send),
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: lambda *_: Command(0),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda *_: Command(
                0, None, fastjson.dumps({"consumerIdList": sorted(self.members)})
            ),
            RequestCode.QUERY_CONSUMER_OFFSET: lambda *_: Command(ResponseCode.QUERY_NOT_FOUND, remark="none"),
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.GET_MAX_OFFSET: lambda *_: Command(0, {"offset": str(len(self.records))}),
            RequestCode.GET_MIN_OFFSET: lambda *_: Command(0, {"offset": "0"}),
            RequestCode.PULL_MESSAGE: self._pull,
        }

    def _heartbeat(self, _: Connection, command: Command) -> Command:
        self.members.add(fastjson.loads(bytes(command.body))["clientID"])
        return Command(0)

    def _send(self, connection: Connection, command: Command) -> Any:
        self.sends += 1
        if self.answer is not None:
            decided = self.answer(connection, command)
            if decided is not None:
                return decided
        header = send_header_of(command.ext, command.code, command.version)
        self.stored.append((header.topic, bytes(command.body)))
        ext = {"msgId": "00" * 16, "queueId": str(header.queueId), "queueOffset": str(len(self.stored) - 1)}
        return Command(0, ext)

    def _update(self, _: Connection, command: Command) -> Command:
        self.committed[command.ext["topic"]] = int(command.ext["commitOffset"])
        return Command(0)

    async def _pull(self, _: Connection, command: Command) -> Command:
        offset = int(command.ext["queueOffset"])
        found = self.records[offset : offset + 2] if command.ext["topic"] == "T" else []
        ext = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": str(len(self.records))}
        if not found:
            self.pull_waits += 1
            with contextlib.suppress(TimeoutError):  # a long poll, though a short one
                async with asyncio.timeout(0.05):
                    await asyncio.Event().wait()
            return Command(ResponseCode.PULL_NOT_FOUND, {**ext, "nextBeginOffset": str(offset)}, remark="nothing")
        return Command(0, {**ext, "nextBeginOffset": str(offset + len(found))}, b"".join(found))

    def store(self, *payloads: bytes, tags: str = "") -> None:
        for body in payloads:
            properties = f"TAGS\x01{tags}\x02".encode() if tags else b""
            self.records.append(
                encode_record(
                    topic="T",
                    queue_id=0,
                    queue_offset=len(self.records),
                    physical_offset=len(self.records) * 1000,
                    born_timestamp=1,
                    born_host=HOST,
                    store_timestamp=2,
                    store_host=HOST,
                    body=body,
                    properties=properties,
                )
            )


class ScriptedCluster:
    """One name server that routes topic T (and retry topics) to the brokers given."""

    def __init__(self, *brokers: ScriptedBroker) -> None:
        self.brokers = brokers
        self.servers: dict[str, RemotingServer] = {}
        self.addresses: dict[str, dict[int, str]] = {}
        self.namesrv = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedCluster"]:
        config = RemotingConfig(listen_port=0, bind_address="127.0.0.1")
        server = RemotingServer(config, {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route})
        self.namesrv = f"127.0.0.1:{await server.start()}"
        self.servers["namesrv"] = server
        for broker in self.brokers:
            own = RemotingServer(config, broker.handlers)
            self.addresses.setdefault(broker.name, {})[0] = f"127.0.0.1:{await own.start()}"
            self.servers[broker.name] = own
        try:
            yield self
        finally:
            for running in self.servers.values():
                await running.stop(0.1)

    def _route(self, _: Connection, command: Command) -> Command:
        topic = command.ext["topic"]
        if topic != "T" and not topic.startswith("%RETRY%"):
            return Command(ResponseCode.TOPIC_NOT_EXIST, remark="unknown")
        route = TopicRoute(
            queues=tuple(QueueData(broker_name=name, read_queues=1, write_queues=1, perm=6) for name in self.addresses),
            groups=tuple(BrokerGroup(cluster="c", name=name, addresses=at) for name, at in self.addresses.items()),
        )
        return Command(0, None, fastjson.dumps(bodies.topic_route_json(route)))

    def config(self, **options: Any) -> ClientConfig:
        return ClientConfig(namesrv=self.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, **options)


def story(brokers: list[ScriptedBroker], tell: Callable[[ScriptedCluster], Any]) -> None:
    async def inside() -> None:
        async with ScriptedCluster(*brokers).running() as cluster:
            await tell(cluster)

    asyncio.run(inside())


def refuse(code: int) -> Callable[[Connection, Command], Command]:
    return lambda *_: Command(code, remark="said no")


async def hang(*_: Any) -> None:
    await asyncio.Event().wait()


def hang_up(connection: Connection, _: Command) -> bytes:
    connection.abort("the story says so")
    return b""


@pytest.mark.parametrize("answer", [hang, hang_up, refuse(ResponseCode.SYSTEM_BUSY)], ids=["hangs", "hangs up", "busy"])
@pytest.mark.parametrize("pipelined", [False, True])
def test_another_broker_takes_what_one_does_not(answer: Any, pipelined: bool) -> None:
    good, bad = ScriptedBroker("good"), ScriptedBroker("bad", answer)

    async def tell(cluster: ScriptedCluster) -> None:
        async with Producer("p", config=cluster.config(send_timeout_ms=2000)) as producer:
            for number in range(2):  # one of the two begins with the bad broker
                message = Message(topic="T", body=b"%d" % number)
                result = await (await producer.submit(message) if pipelined else producer.send(message))
                assert result.queue.broker_name == "good"

    story([good, bad], tell)
    assert [body for _, body in good.stored] == [b"0", b"1"]
    assert bad.sends in (1, 2)  # the turn that comes after a retry may be its own again


@pytest.mark.parametrize("pipelined", [False, True])
def test_when_all_fail_the_error_tells_of_every_attempt(pipelined: bool) -> None:
    brokers = [ScriptedBroker(name, refuse(ResponseCode.SYSTEM_BUSY)) for name in ("a", "b")]

    async def tell(cluster: ScriptedCluster) -> None:
        async with Producer("p", config=cluster.config(retry_times=2)) as producer:
            message = Message(topic="T", body=b"x")
            with pytest.raises(SendFailed) as failure:
                await (await producer.submit(message) if pipelined else producer.send(message))
            names = [attempt.broker_name for attempt in failure.value.attempts]  # type: ignore[attr-defined]
            assert len(names) == 3
            assert names[0] != names[1] != names[2]
            assert failure.value.code == ResponseCode.SYSTEM_BUSY
            assert str(failure.value).count("said no") == 3

    story(brokers, tell)


def test_a_refusal_that_is_final_is_not_repeated() -> None:
    brokers = [ScriptedBroker(name, refuse(ResponseCode.MESSAGE_ILLEGAL)) for name in ("a", "b")]

    async def tell(cluster: ScriptedCluster) -> None:
        async with Producer("p", config=cluster.config()) as producer:
            with pytest.raises(SendFailed, match="1 attempt"):
                await producer.send(Message(topic="T", body=b"x"))

    story(brokers, tell)
    assert sum(broker.sends for broker in brokers) == 1


def test_a_fixed_queue_is_not_tried_elsewhere() -> None:
    brokers = [ScriptedBroker("a", hang_up), ScriptedBroker("b")]

    async def tell(cluster: ScriptedCluster) -> None:
        async with Producer("p", config=cluster.config()) as producer:
            with pytest.raises(SendFailed, match="1 attempt"):
                await producer.send(Message(topic="T", body=b"x"), queue=QueueRef("T", "a", 0))

    story(brokers, tell)
    assert brokers[1].sends == 0


def test_a_missing_copy_is_a_status_and_no_error() -> None:
    ext = {"msgId": "00" * 16, "queueId": "0", "queueOffset": "5"}
    broker = ScriptedBroker("a", lambda *_: Command(ResponseCode.FLUSH_SLAVE_TIMEOUT, ext, remark="slave is slow"))

    async def tell(cluster: ScriptedCluster) -> None:
        async with Producer("p", config=cluster.config()) as producer:
            result = await producer.send(Message(topic="T", body=b"x"), copies=2)
            assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
            assert (result.queue_offset, result.remark) == (5, "slave is slow")
        assert broker.sends == 1
        async with Producer("p", config=cluster.config(retry_not_stored_ok=True, retry_times=1)) as producer:
            with pytest.raises(SendFailed, match="slave is slow"):
                await producer.send(Message(topic="T", body=b"x"))
        assert broker.sends == 3

    story([broker], tell)


def test_required_copies_travel_as_a_property() -> None:
    seen: list[str] = []

    def answer(_: Connection, command: Command) -> None:
        seen.append(command.ext["i"])

    async def tell(cluster: ScriptedCluster) -> None:
        async with Producer("p", config=cluster.config()) as producer:
            await producer.send(Message(topic="T", body=b"x"), copies="majority+disk")
            await producer.send_batch([Message(topic="T", body=b"x")] * 2, copies=2)

    story([ScriptedBroker("a", answer)], tell)
    assert "__TQ_COPIES\x01majority+disk\x02" in seen[0]
    assert "__TQ_COPIES\x012\x02" in seen[1]


def test_a_closed_producer_sends_no_more_but_finishes_what_it_has() -> None:
    broker = ScriptedBroker("a")
    wrapped = broker._send
    gate = asyncio.Event()

    async def send(connection: Connection, command: Command) -> Any:
        await gate.wait()
        return wrapped(connection, command)

    broker.handlers[RequestCode.SEND_MESSAGE_V2] = send

    async def tell(cluster: ScriptedCluster) -> None:
        producer = Producer("p", config=cluster.config())
        await producer.start()
        futures = [await producer.submit(Message(topic="T", body=b"x")) for _ in range(5)]
        closing = asyncio.create_task(producer.close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closing.done()
        gate.set()
        await closing
        assert all(future.result().ok for future in futures)
        with pytest.raises(Exception, match="closed"):
            await producer.send(Message(topic="T", body=b"x"))

    story([broker], tell)


def test_sends_in_flight_are_bounded() -> None:
    release = asyncio.Event()
    broker = ScriptedBroker("a")
    plain = broker._send

    async def send(connection: Connection, command: Command) -> Any:
        await release.wait()
        return plain(connection, command)

    broker.handlers[RequestCode.SEND_MESSAGE_V2] = send

    async def tell(cluster: ScriptedCluster) -> None:
        async with Producer("p", config=cluster.config(in_flight_max=3)) as producer:
            futures = [await producer.submit(Message(topic="T", body=b"x")) for _ in range(3)]
            fourth = asyncio.create_task(producer.submit(Message(topic="T", body=b"x")))
            await asyncio.wait([fourth], timeout=0.05)
            assert not fourth.done()
            release.set()
            await asyncio.gather(*futures, await fourth)

    story([broker], tell)


def test_no_name_server_says_which_were_asked() -> None:
    async def inside() -> None:
        async with Producer("p", namesrv="127.0.0.1:1;127.0.0.1:2") as producer:
            with pytest.raises(RemotingError, match=r"127\.0\.0\.1:[12].*127\.0\.0\.1:[12]"):
                await producer.send(Message(topic="T", body=b"x"))

    asyncio.run(inside())


def test_a_topic_nobody_knows_says_how_to_create_it() -> None:
    async def tell(cluster: ScriptedCluster) -> None:
        async with Producer("p", config=cluster.config()) as producer:
            with pytest.raises(NoRoute, match="topic create other"):
                await producer.send(Message(topic="other", body=b"x"))

    story([ScriptedBroker("a")], tell)


def test_what_the_broker_does_not_take_back_is_sent_to_the_retry_topic() -> None:
    broker = ScriptedBroker("a")
    broker.store(b"bad")
    broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = refuse(ResponseCode.SYSTEM_ERROR)
    tried: list[ReceivedMessage] = []

    async def listener(messages: Any) -> Action:
        tried.extend(messages)
        return Action.LATER

    async def tell(cluster: ScriptedCluster) -> None:
        consumer = PushConsumer("g", listener, config=cluster.config())
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: bool(broker.stored), "the message in the retry topic")
        assert broker.stored == [("%RETRY%g", b"bad")]
        assert broker.committed["T"] == 1

    story([broker], tell)
    assert len(tried) == 1


def test_hashes_that_collide_are_told_apart_by_the_consumer() -> None:
    broker = ScriptedBroker("a")
    broker.store(b"wanted", tags="Aa")
    broker.store(b"not wanted", tags="BB")  # the same Java hash as Aa

    async def tell(cluster: ScriptedCluster) -> None:
        got: list[bytes] = []

        async def listener(messages: Any) -> None:
            got.extend(message.body for message in messages)

        consumer = PushConsumer("g", listener, config=cluster.config())
        consumer.subscribe("T", "Aa")
        async with consumer:
            await until(lambda: broker.pull_waits > 0 and bool(got), "both messages pulled")
        assert got == [b"wanted"]

    story([broker], tell)


def test_records_cut_short_are_an_error_and_no_message() -> None:
    broker = ScriptedBroker("a")
    broker.store(b"whole", b"cut")
    whole = broker.records[1]
    broker.records[1] = whole[:-5]

    async def tell(cluster: ScriptedCluster) -> None:
        config = cluster.config(pull_error_delay_ms=20)
        async with PullConsumer("g", config=config) as consumer:
            await consumer.assign([QueueRef("T", "a", 0)])
            assert await consumer.poll(200) == []
            broker.records[1] = whole
            got: list[ReceivedMessage] = []
            while len(got) < 2:
                got += await consumer.poll(5000)
        assert [message.body for message in got] == [b"whole", b"cut"]

    story([broker], tell)


def test_a_slow_listener_holds_up_pulling_not_memory() -> None:
    broker = ScriptedBroker("a")
    broker.store(*[b"%d" % i for i in range(100)])
    gate = asyncio.Event()
    got: list[bytes] = []

    async def listener(messages: Any) -> None:
        await gate.wait()
        got.extend(message.body for message in messages)

    async def tell(cluster: ScriptedCluster) -> None:
        consumer = PushConsumer("g", listener, config=cluster.config(queue_cache_max=10, consume_concurrency=2))
        consumer.subscribe("T")
        async with consumer:
            states = consumer.states
            await until(lambda: any(state.count >= 10 for state in states().values()), "a full cache")
            for _ in range(2000):  # turns of the loop in which a consumer without a limit would pull the rest
                await asyncio.sleep(0)
            assert max(state.count for state in states().values()) <= 11
            gate.set()
            await until(lambda: len(got) == 100, "all messages")
        assert sorted(got, key=int) == [b"%d" % i for i in range(100)]
        assert broker.committed["T"] == 100

    story([broker], tell)


def test_listeners_at_work_finish_before_close_commits() -> None:
    broker = ScriptedBroker("a")
    broker.store(b"0", b"1")
    began, gate = asyncio.Event(), asyncio.Event()
    finished: list[bytes] = []

    async def listener(messages: Any) -> None:
        began.set()
        await gate.wait()
        finished.extend(message.body for message in messages)

    async def tell(cluster: ScriptedCluster) -> None:
        consumer = PushConsumer("g", listener, config=cluster.config())
        consumer.subscribe("T")
        await consumer.start()
        await began.wait()
        closing = asyncio.create_task(consumer.close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closing.done()
        gate.set()
        await closing
        assert sorted(finished) == [b"0", b"1"][: len(finished)]
        assert broker.committed["T"] == len(finished)

    story([broker], tell)


def test_another_name_server_is_asked_when_the_one_in_use_dies() -> None:
    async def tell(cluster: ScriptedCluster) -> None:
        config = RemotingConfig(listen_port=0, bind_address="127.0.0.1")
        second = RemotingServer(config, {RequestCode.GET_ROUTEINFO_BY_TOPIC: cluster._route})
        other = f"127.0.0.1:{await second.start()}"
        servers = {cluster.namesrv: cluster.servers["namesrv"], other: second}
        async with Producer("p", namesrv=f"{cluster.namesrv};{other}") as producer:
            await producer.send(Message(topic="T", body=b"x"))
            used = producer.session.namesrv.current
            for _ in range(3):
                await producer.session.route("T", refresh=True)
            assert producer.session.namesrv.current == used
            await servers[used].stop(0.1)
            await producer.session.route("T", refresh=True)
            assert producer.session.namesrv.current != used
        await second.stop(0.1)

    story([ScriptedBroker("a")], tell)


def test_routes_and_heartbeats_are_repeated() -> None:
    first, late = ScriptedBroker("a"), ScriptedBroker("b")
    beats: list[str] = []

    def counted(connection: Connection, command: Command) -> Command:
        beats.append("a")
        return ScriptedBroker._heartbeat(first, connection, command)

    first.handlers[RequestCode.HEART_BEAT] = counted

    async def tell(cluster: ScriptedCluster) -> None:
        hidden = cluster.addresses.pop("b")
        config = cluster.config(route_interval_ms=100, heartbeat_interval_ms=100, rebalance_interval_ms=60_000)
        consumer = PushConsumer("g", lambda _: None, config=config)
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: QueueRef("T", "a", 0) in consumer.assignment, "the queue of the first broker")
            cluster.addresses["b"] = hidden
            await until(lambda: QueueRef("T", "b", 0) in consumer.assignment, "the queue of the broker that came later")
            seen = len(beats)
            await until(lambda: len(beats) > seen + 2, "more heartbeats")
            await until(lambda: consumer.session.client_id in late.members, "a heartbeat to the later broker")

    story([first, late], tell)


def test_a_notice_of_the_broker_rebalances_at_once() -> None:
    broker = ScriptedBroker("a")
    connections: list[Connection] = []
    heartbeat = broker.handlers[RequestCode.HEART_BEAT]

    def remembered(connection: Connection, command: Command) -> Any:
        connections.append(connection)
        return heartbeat(connection, command)

    broker.handlers[RequestCode.HEART_BEAT] = remembered

    async def tell(cluster: ScriptedCluster) -> None:
        consumer = PushConsumer("g", lambda _: None, config=cluster.config(rebalance_interval_ms=600_000))
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: len(consumer.assignment) == 2, "the queues of topic and retry topic")
            broker.members.add("0-another-member")  # sorts first: with one queue a topic, it gets both
            notice = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
            connections[-1].send_oneway(notice)
            await until(lambda: consumer.assignment == (), "both queues given up")

    story([broker], tell)
