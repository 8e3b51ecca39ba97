"""Tables have bounds in bytes, long work gives others their turn, and answers stay within a frame.

Every story was seen against a running broker or name server: what it cost before is said beside it.
"""

import asyncio
import json
import struct
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.security.guarded import send
from tests.security.test_bounded_work import told

from tandemq.broker import filters, sql92, subscriptions
from tandemq.broker.broker import Broker
from tandemq.broker.handlers import clients
from tandemq.broker.handlers import locks as lock_handlers
from tandemq.broker.handlers import offsets as offset_handlers
from tandemq.broker.long_polling import ParkedPull, ParkedPulls
from tandemq.broker.tables import locks, members, offsets
from tandemq.broker.tables.locks import QueueLocks
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.clock import SystemClock
from tandemq.codec import bodies, fastjson, heartbeat, register
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_request
from tandemq.codec.register import decode_registration, encode_registration
from tandemq.errors import CorruptRecord, MalformedBody, ReplyError
from tandemq.formats.batch import encode_batch, parse_batch
from tandemq.model.topic import DataVersion, QueueRef, TopicConfig
from tandemq.namesrv import handlers as namesrv_handlers
from tandemq.namesrv import routes
from tandemq.namesrv.routes import Registering, RouteTable
from tandemq.remoting import slices
from tandemq.remoting.access.needs import needs
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import SLICE_S
from tandemq.remoting.server import RemotingServer
from tandemq.store import reader
from tandemq.testing.local_cluster import LocalCluster
from tandemq.testing.waiting import until

# --- many requests in one write: 700 SQL92 pulls held the loop for 1.8 s ----------------------------------------------


def test_requests_that_come_together_leave_others_their_turn() -> None:
    async def main() -> None:
        passed, seen = 0.0, 0

        def slow(connection: Any, command: Command) -> bytes:
            nonlocal passed
            passed += SLICE_S / 2
            order.append(command.opaque)
            between.append(seen)
            return b""

        async def others() -> None:
            nonlocal seen
            while True:
                await asyncio.sleep(0)
                seen += 1

        order: list[int] = []
        between: list[int] = []
        server = RemotingServer(RemotingConfig(bind_address="127.0.0.1"), {77: slow})
        server.turns.clock = lambda: passed
        port = await server.listen(0)
        task = asyncio.create_task(others())
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(encode_request(Command(77, {}, opaque=number)) for number in range(60)))
        await until(lambda: len(order) == 60, "every request")
        task.cancel()
        assert order == list(range(60))  # still one after the other
        assert len(set(between)) >= 60 // 3
        later = b"".join(encode_request(Command(77, {}, opaque=number)) for number in range(60, 70))
        writer.write(later + b"\xff" * 8)  # and something that is no frame
        await until(lambda: len(order) == 70, "those that came before the broken one")
        await until(lambda: not server.connections, "the connection's end")
        writer.close()
        await server.stop()

    asyncio.run(main())


def test_sends_that_come_together_leave_others_their_turn() -> None:
    """Those that a prefix of their header finds a handler for: 100 compressed batches in one read took 0.33 s."""

    async def main() -> None:
        passed, seen = 0.0, 0

        @needs()
        def slow(connection: Any, opaque: int, flag: int, send: Any, body: Any) -> bytes:
            nonlocal passed
            passed += SLICE_S / 2
            between.append(seen)
            return b""

        async def others() -> None:
            nonlocal seen
            while True:
                await asyncio.sleep(0)
                seen += 1

        between: list[int] = []
        code = RequestCode.SEND_MESSAGE_V2
        server = RemotingServer(RemotingConfig(bind_address="127.0.0.1"), {}, send_handlers={code: slow})
        server.turns.clock = lambda: passed
        port = await server.listen(0)
        task = asyncio.create_task(others())
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(encode_request(send("t", b"x")) * 60)
        await until(lambda: len(between) == 60, "every send")
        task.cancel()
        assert len(set(between)) >= 60 // 3
        assert server.turns.longest().what == "SEND_MESSAGE_V2"
        writer.close()
        await server.stop()

    asyncio.run(main())


# --- bodies: 15 MiB of empty objects in a lock request took 9 s and 735 MiB -------------------------------------------


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.LOCK_BATCH_MQ, b'{"mqSet":[%b{}]}' % (b"{}," * 350_000)),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topicConfigList":[%b{}]}' % (b"{}," * 350_000)),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b'{"groupConfigList":[%b{}]}' % (b"{}," * 350_000)),
        (RequestCode.LOCK_BATCH_MQ, b'{"mqSet":[%b{}]}' % (b"{}," * 300_000)),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topicConfigList":[%b{}]}' % (b"{}," * 300_000)),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b'{"groupConfigList":[%b{}]}' % (b"{}," * 300_000)),
    ],
)
def test_a_body_is_refused_before_it_becomes_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, body: bytes
) -> None:
    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        made = 0

        def counted(name: str) -> Any:
            original = getattr(bodies, name)

            def count(*given: Any) -> Any:
                nonlocal made
                made += 1
                return original(*given)

            return count

        for name in ("queue_of", "topic_config_of", "group_config_of"):
            monkeypatch.setattr(bodies, name, counted(name))
        reply = await client.invoke(broker.address, Command(code, {}, body), 30)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "the limit is" in str(reply.remark)
        assert made == 0

    told(tmp_path, story)


def test_a_heartbeat_names_so_many_groups_and_subscriptions() -> None:
    groups = [{"groupName": "g"}] * (heartbeat.GROUPS_MAX + 1)
    for body in (
        {"clientID": "c", "consumerDataSet": groups},
        {"clientID": "c", "producerDataSet": groups},
        {"clientID": "c", "consumerDataSet": [{"subscriptionDataSet": [{}] * heartbeat.SUBSCRIPTIONS_MAX}, *groups[:1]]}
        | {"producerDataSet": groups},
    ):
        with pytest.raises(MalformedBody, match="the limit is"):
            heartbeat.decode_heartbeat(json.dumps(body).encode())
    many = [{"groupName": "g", "subscriptionDataSet": [{"topic": "t"}] * 3000}] * 2
    with pytest.raises(MalformedBody, match="6000 subscriptions"):
        heartbeat.decode_heartbeat(json.dumps({"clientID": "c", "consumerDataSet": many}).encode())


# --- filters: 300 SQL92 expressions stayed as 537 MiB -----------------------------------------------------------------


def test_compiled_filters_are_kept_by_the_size_of_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "_sql_filter", filters.TextCache(filters._compiled, filters.SQL_CACHE_SIZE_MAX))
    for number in range(90):
        text = f"a{number} = 1 OR " + " OR ".join(f"b = {term}" for term in range(400))
        wanted = subscriptions.parse_subscription("t", text, "SQL92")
        assert filters.message_filter(wanted, property_filter=True).sql is not None
    assert filters._sql_filter.size <= filters.SQL_CACHE_SIZE_MAX == 1 << 18


def test_a_long_expression_is_compiled_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 new ones, each 15 ms of the loop, took 59 to 150 ms at a time with the garbage of the others."""
    compiled, threads = filters.compile_sql, list[tuple[int, str]]()

    def compile_sql(text: str) -> Any:
        threads.append((len(text), threading.current_thread().name))
        return compiled(text)

    monkeypatch.setattr(filters, "compile_sql", compile_sql)

    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        assert (await client.invoke(broker.address, send("t", b"x", a0="0"), 10)).code == 0
        expressions = [" OR ".join(f"a{number} = '{number}'" for number in range(120)), "a0 = '0'"]
        for expression in expressions:
            subscription = {"topic": "t", "subString": expression, "expressionType": "SQL92"}
            body = json.dumps({"subscriptionData": subscription}).encode()
            assert (
                await client.invoke(broker.address, Command(RequestCode.CHECK_CLIENT_CONFIG, {}, body), 10)
            ).code == 0
        for expression in (expressions[0] + " OR b = '1'", expressions[1], "a0 IN (" + "'0', " * 400):
            ext = {
                "consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1",
                "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": expression,
                "expressionType": "SQL92", "subVersion": "0",
            }  # fmt: skip
            answer = await client.invoke(broker.address, Command(RequestCode.PULL_MESSAGE, ext), 10)
            refused = expression.startswith("a0 IN")
            assert answer.code == (ResponseCode.SUBSCRIPTION_PARSE_FAILED if refused else 0)
        long = [name for size, name in threads if size > filters.LONG_SQL_MIN]
        assert sum(name != "MainThread" for name in long) == 3
        assert len(long) == 4  # the one that is wrong is looked at again to be told

    properties = {"enablePropertyFilter": "true"}

    async def main() -> None:
        async with LocalCluster(tmp_path, properties=properties) as cluster, RemotingClient(RemotingConfig()) as client:
            await story(cluster, await cluster.add_broker(), client)

    asyncio.run(main())


def test_an_expression_has_so_many_words() -> None:
    text = " OR ".join(["p"] * sql92.TOKENS_MAX)
    assert len(text) < sql92.LENGTH_MAX * 2
    with pytest.raises(sql92.SqlError, match=f"more than {sql92.TOKENS_MAX} words"):
        sql92.compile_sql(text[: sql92.LENGTH_MAX - 4].rsplit(" OR", 1)[0])


def test_a_subscription_holds_its_text_alone() -> None:
    text = "||".join(f"tag{number}" for number in range(1000))
    wanted = subscriptions.parse_subscription("t", text)
    assert len(wanted.codes) == len(wanted.tags) == 1000
    held = [getattr(wanted, name) for name in wanted.__slots__]
    assert sum(len(value) for value in held if isinstance(value, str | tuple | frozenset)) < len(text) + 20


def test_parked_pulls_hold_so_much_of_expressions_each_counted_once() -> None:
    parked: ParkedPulls[int] = ParkedPulls(1000, size_max=100)
    shared, other = object(), object()
    waiting = [ParkedPull(("t", 0), "owner", 9.0, number, shared, 60) for number in range(3)]
    assert all(map(parked.park, waiting))
    assert not parked.park(ParkedPull(("t", 0), "owner", 9.0, 9, other, 60))
    assert parked.park(ParkedPull(("t", 0), "owner", 9.0, 9))
    assert parked.size == 60
    parked.take([("t", 0)])
    assert parked.size == 0
    assert parked.park(ParkedPull(("t", 0), "owner", 9.0, 9, other, 60))


# --- clients: 10 heartbeats stayed as 528 MiB, 20 lock requests as 301 ------------------------------------------------


def test_subscriptions_of_all_clients_have_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "SUBSCRIPTIONS_SIZE_MAX", 10_000)
    table: Any = Members()
    connection = object()
    wanted = [subscriptions.parse_subscription(f"t{number}", "x" * 100) for number in range(10)]

    def register(group: str) -> bool:
        return bool(table.register_consumer(
            group, connection, "c", "JAVA", 1, 0.0, consume_type="", message_model="", consume_from_where="",
            subscriptions=wanted,
        ))  # fmt: skip

    assert table.has_room("a", connection, wanted)
    for group in "ab":
        register(group)
    assert 8_000 < table.subscriptions_size < 10_000
    assert table.has_room("a", connection, wanted)  # what it has is not counted twice
    assert not table.has_room("c", connection, wanted)
    table.drop_connection(connection)
    assert table.subscriptions_size == 0


def test_a_heartbeat_that_finds_no_room_creates_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "GROUPS_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(clients, "GROUPS_PER_TURN", 1)

    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        beat = {"clientID": "c", "consumerDataSet": [{"groupName": f"g{number}"} for number in range(3)]}
        command = Command(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode())
        assert (await client.invoke(broker.address, command, 10)).code == ResponseCode.SYSTEM_BUSY
        assert "g1" in broker.groups
        assert "g2" not in broker.groups

    told(tmp_path, story)


def test_locks_have_a_bound_in_bytes() -> None:
    table = QueueLocks(60.0, size_max=5 * (locks.LOCK_SIZE + 510))
    queues = [QueueRef("t" * 250, "b" * 250, number) for number in range(10)]
    assert table.lock("g", "c" * 10, queues, 0.0) == queues[:5]
    assert table.lock("g", "c" * 10, queues, 1.0) == queues[:5]  # renewing costs nothing
    assert table.lock("g", "another client", queues[:1], 100.0) == []  # its longer name does not fit
    assert table.lock("g", "d" * 10, queues[:1], 100.0) == queues[:1]
    table.unlock("g", "d" * 10, queues)
    table.expire(200.0)
    assert (len(table), table.size) == (0, 0)


class Counted(QueueLocks):
    """Notes how many queues are locked or unlocked in one call."""

    def __init__(self) -> None:
        super().__init__(60.0)
        self.asked: list[int] = []

    def lock(self, group: str, client_id: str, queues: Iterable[QueueRef], now: float) -> list[QueueRef]:
        self.asked.append(len(list(queues)))
        return super().lock(group, client_id, queues, now)

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueRef]) -> None:
        self.asked.append(len(list(queues)))
        super().unlock(group, client_id, queues)


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
def test_many_locks_are_taken_a_few_at_a_time(code: int) -> None:
    """Ten thousand in one request took 25 ms, with others' locks in memory 90."""

    async def main() -> None:
        table = Counted()
        handlers = lock_handlers.LockHandlers(table, SystemClock(), is_slave=lambda: False).handlers()
        handler: Any = handlers[code]
        queues = [{"topic": "t", "brokerName": "b", "queueId": number} for number in range(lock_handlers.QUEUES_MAX)]
        for chosen, at_once in ((queues, False), (queues[:100], True)):
            table.asked.clear()
            body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": chosen}).encode()
            reply = handler(None, Command(code, {}, memoryview(body)))
            assert isinstance(reply, bytes) == at_once
            answer = reply if at_once else await reply
            assert sum(table.asked) == len(chosen)
            assert max(table.asked) <= lock_handlers.QUEUES_PER_TURN
            if code == RequestCode.LOCK_BATCH_MQ:
                assert answer.count(b'"queueId"') == len(chosen)

    asyncio.run(main())


def test_a_batch_has_no_more_messages_than_fit_into_the_log() -> None:
    """180,000 elements in 4 MiB became arrays of 60 MiB before their records were found too large."""
    body = encode_batch([(0, b"x", b"")] * 1000)
    assert len(parse_batch(body, 1000)) == 1000
    with pytest.raises(CorruptRecord, match="more than 999 messages"):
        parse_batch(body, 999)


def test_cloned_offsets_and_resets_have_the_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone was not counted: every request added 65,536 entries, for as many groups as one liked to name."""
    monkeypatch.setattr(offsets, "ENTRIES_MAX", 3)
    table = OffsetTable(lambda: 0)
    table.commit("g", "t", 0, 7)
    assert table.clone("g", "g", "t")
    assert table.query("g", "t", 0) == 7
    assert table.clone("g", "h", "t")
    assert table.clone("g", "i", "t")
    assert not table.clone("g", "j", "t")
    assert table.query("j", "t", 0) == offsets.NOT_FOUND
    table.set_reset("k", "t", 0, 1)
    assert not table.has_reset("k", "t", 0)
    table.set_reset("h", "t", 0, 1)
    assert table.has_reset("h", "t", 0)


def test_a_deleted_topic_is_not_told_queue_by_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """65,536 queues of each group that consumed it took 40 ms, and are told slaves with the whole table anyway."""
    monkeypatch.setattr(offsets, "KEYS_MAX", 10)
    table = OffsetTable(lambda: 0)
    for group in ("g", "h"):
        for queue in range(6):
            table.commit(group, "t", queue, 7)
    mark, count = table.changes.mark, table.changes.count
    assert table.clone("g", "i", "t")
    assert table.changes.since_mark(mark) == [("t", "i", queue) for queue in range(6)]
    table.remove_topic("t")
    assert table.changes.since_mark(mark) is None
    assert table.changes.count - count < 10
    assert (table.dirty, len(table)) == (True, 0)


def test_offsets_of_a_topic_with_many_queues_are_written_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_handlers, "QUEUES_AT_ONCE", 3)

    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        for group, count in (("g", 3), ("h", 10), ("i", 20)):
            for queue in range(count):
                broker.offsets.commit(group, "t", queue, queue)
        answer = await client.invoke(broker.address, Command(RequestCode.GET_ALL_CONSUMER_OFFSET, {}), 10)
        table = fastjson.loads(answer.body)["offsetTable"]
        assert {key: len(queues) for key, queues in table.items()} == {"t@g": 3, "t@h": 10, "t@i": 20}
        assert table["t@i"][19] == 19

    told(tmp_path, story)


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        (RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "t", "filterGroups": "", "compareGroup": "g0"}),
        (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "many", "destGroup": "new", "offline": "true"}),
        (RequestCode.QUERY_CONSUME_QUEUE, {"topic": "t", "queueId": "0", "index": "0", "count": "1024"}),
    ],
)
def test_what_looks_at_many_offsets_or_messages_leaves_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, ext: dict[str, str]
) -> None:
    """Two million offsets, or a thousand bodies of 4 MiB, were gone through at once."""
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)

    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        for number in range(20):
            assert (await client.invoke(broker.address, send("t", b"x"), 10)).code == 0
            broker.topics.create_internal(f"t{number}", 1)
            broker.offsets.commit(f"g{number}", "t", 0, 1)
            broker.offsets.commit("many", f"t{number}", 0, 1)
        turns, breathed = 0, slices.Slices.breathe

        async def breathe(self: slices.Slices) -> None:
            nonlocal turns
            turns += 1
            await breathed(self)

        monkeypatch.setattr(slices.Slices, "breathe", breathe)
        answer = await client.invoke(broker.address, Command(code, dict(ext)), 10)
        assert answer.code == 0, answer.remark
        assert turns >= 20
        if code == RequestCode.CLONE_GROUP_OFFSET:
            assert broker.offsets.query("new", "t19", 0) == 1
        if code == RequestCode.QUERY_CORRECTION_OFFSET:
            assert fastjson.loads(answer.body) == {"correctionOffsets": {0: 1}}
        if code == RequestCode.QUERY_CONSUME_QUEUE:
            assert len(fastjson.loads(answer.body)["queueData"]) == 20

    told(tmp_path, story)


def test_offsets_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "ENTRIES_MAX", 3)
    table = OffsetTable(lambda: 0)
    for queue in range(5):
        table.commit("g", "t", queue, 7)
    assert table.of("g", "t") == {0: 7, 1: 7, 2: 7}
    table.commit("g", "t", 0, 8)  # what is there goes on
    assert table.query("g", "t", 0) == 8
    table.remove_group("g")
    table.commit("other", "t", 0, 1)
    assert table.query("other", "t", 0) == 1


# --- name servers: a registration held the loop for 0.5 s, a name server's loop stood for 20 s ------------------------


def registering(name: str, count: int, **options: Any) -> Registering:
    return Registering(
        cluster="c", broker_name=name, broker_id=0, address=f"{name}:1", ha_address="", version=DataVersion(),
        topics={f"t{number}": TopicConfig(name=f"t{number}") for number in range(count)}, **options,
    )  # fmt: skip


def test_a_registration_is_taken_in_and_forgotten_in_steps() -> None:
    table = RouteTable()
    count = 10 * routes.STEP
    steps = table.register_in_steps(registering("big", count), 0.0, timeout=9.0)
    assert sum(1 for _ in steps) == 10
    assert len(table.topics()) == count
    assert len({id(held["big"]) for held in table._topics.values()}) == 1  # topics that are alike share an object
    table.unregister("c", "big", "big:1")
    assert table.is_sweeping
    assert table.route("t1") is None  # whatever is still to be swept
    sweeps = 0
    while table.is_sweeping:
        table.sweep()
        sweeps += 1
    assert sweeps == 9
    assert (table.topic_count, table._route_count, table._topics_of) == (0, 0, {})


def test_permissions_of_many_topics_change_in_steps() -> None:
    table = RouteTable()
    table.register(registering("big", 10 * routes.STEP), 0.0, timeout=9.0)
    steps = table.perm_in_steps("big", writable=False)
    assert sum(1 for _ in steps) == 10
    assert {held["big"].perm for held in table._topics.values()} == {4}
    assert table.add_write_perm("big") == 10 * routes.STEP
    assert {held["big"].perm for held in table._topics.values()} == {6}


def test_a_group_that_comes_back_keeps_what_it_offers_again() -> None:
    table = RouteTable()
    table.register(registering("big", 3 * routes.STEP), 0.0, timeout=9.0)
    table.unregister("c", "big", "big:1")
    table.register(registering("big", 2), 1.0, timeout=9.0)
    while table.is_sweeping:
        table.sweep()
    assert sorted(table.topics()) == ["t0", "t1"]
    assert table._route_count == 2


def test_a_broker_that_leaves_meanwhile_is_not_taken_in_further() -> None:
    table = RouteTable()
    steps = table.register_in_steps(registering("big", 5 * routes.STEP), 0.0, timeout=9.0)
    next(steps)
    table.unregister("c", "big", "big:1")
    assert sum(1 for _ in steps) == 0
    assert table.topic_count == 0


def test_a_connection_registers_so_many_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BROKERS_PER_CONNECTION_MAX", 2)
    table = RouteTable()
    for name in ("a", "b", "a"):
        table.register(registering(name, 0, connection="one"), 0.0, timeout=9.0)
    with pytest.raises(ReplyError, match="through this connection"):
        table.register(registering("c", 0, connection="one"), 0.0, timeout=9.0)
    table.register(registering("c", 0, connection="two"), 0.0, timeout=9.0)
    table.disconnected("one")
    table.register(registering("d", 0, connection="one"), 0.0, timeout=9.0)


@pytest.mark.parametrize("field", ["cluster", "broker_name", "address", "ha_address"])
def test_names_of_what_registers_are_short(field: str) -> None:
    given = {"cluster": "c", "broker_name": "b", "address": "a:1", "ha_address": "", field: "x" * 300}
    request = Registering(broker_id=0, topics={}, version=DataVersion(), **given)  # type: ignore[arg-type]
    with pytest.raises(ReplyError, match="300 characters"):
        RouteTable().register(request, 0.0, timeout=9.0)


def compressed(*topics: bytes) -> bytes:
    parts = [struct.pack(">i", len(topic)) + topic for topic in topics]
    data = (
        struct.pack(">i", 2) + b"{}" + struct.pack(">i", len(topics)) + b"".join(parts) + struct.pack(">i", 2) + b"[]"
    )
    return zlib.compress(data, 9)


@pytest.mark.parametrize(
    "body",
    [
        compressed(*[b"t 1 1 6"] * (register.TOPICS_MAX + 1)),
        compressed(b"t 1 1 6 SINGLE_TAG {%b}" % (b"a:1," * 5000)),
        compressed(b"x" * 300 + b" 1 1 6"),
        compressed(b"t 1 1 6 SINGLE_TAG " + b"," * register.ITEMS_MAX, b""),
    ],
    ids=["topics", "attributes", "name", "items"],
)
def test_a_compressed_registration_has_bounds_in_what_it_holds(body: bytes) -> None:
    with pytest.raises(MalformedBody, match="the limit is"):
        decode_registration(body, compressed=True, peer_version=407)


def test_a_registration_in_json_has_a_bound_in_items() -> None:
    body = b'{"filterServerList":[%b1]}' % (b"1," * register.ITEMS_MAX)
    with pytest.raises(MalformedBody, match=f"the limit is {register.ITEMS_MAX}"):
        decode_registration(body, compressed=False, peer_version=407)


def test_a_list_of_topics_is_made_in_turns_and_cut_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namesrv_handlers, "NAMES_PER_TURN", 10)

    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        ext = {
            "brokerName": "big", "brokerAddr": "10.0.0.9:1", "clusterName": "c", "haServerAddr": "", "brokerId": "0",
        }  # fmt: skip
        topics = [TopicConfig(name=f"topic-{number:03}") for number in range(100)]
        body = encode_registration(topics, DataVersion())
        await client.invoke(cluster.namesrv_address, Command(RequestCode.REGISTER_BROKER, ext, body), 10)
        ask = Command(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"})
        whole = await client.invoke(cluster.namesrv_address, ask, 10)
        assert sorted(json.loads(bytes(whole.body))["topicList"]) == [topic.name for topic in topics]
        monkeypatch.setattr(namesrv_handlers, "LIST_SIZE_MAX", 500)
        cut = await client.invoke(
            cluster.namesrv_address, Command(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}), 10
        )
        assert len(json.loads(bytes(cut.body))["topicList"]) < 50
        assert "more topics don't fit" in str(cut.remark)

    told(tmp_path, story)


# --- answers: statistics of a wide topic held the loop for 1 s, a query took 564 MiB ----------------------------------


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "wide"}),
        (RequestCode.GET_CONSUME_STATS, {"topic": "wide", "consumerGroup": "g"}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "wide", "group": "g"}),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": "wide", "group": "g", "timestamp": "-1"}),
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, {}),
        (RequestCode.GET_ALL_PRODUCER_INFO, {}),
    ],
)
def test_a_long_answer_leaves_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, ext: dict[str, str]
) -> None:
    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        broker.topics.put(TopicConfig(name="wide", read_queues=300, write_queues=300))
        for number in range(300):
            broker.topics.put(TopicConfig(name=f"t{number}"))
            assert broker.groups.find_or_create(f"g{number}") is not None
            broker.offsets.commit(f"g{number}", "wide", 0, 1)
        assert broker.groups.find_or_create("g") is not None
        producers = {"clientID": "c", "producerDataSet": [{"groupName": f"p{number}"} for number in range(300)]}
        beat = Command(RequestCode.HEART_BEAT, {}, json.dumps(producers).encode())
        assert (await client.invoke(broker.address, beat, 10)).code == ResponseCode.SUCCESS
        monkeypatch.setattr("tandemq.remoting.slices.Slices.__init__", always_late)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.create_task(others())
        handler: Any = broker.server.dispatcher.handlers[code]
        await handler(SimpleNamespace(peer="?"), Command(code, dict(ext)))
        task.cancel()
        assert turns >= 290

    told(tmp_path, story)


def always_late(self: Any, clock: Any, seconds: float = 0.0) -> None:
    """Makes every slice over at once: each step gives the loop to others."""
    self._now, self._seconds, self._end = (lambda: 1.0), 0.0, 0.0


def test_a_query_reads_so_many_bytes_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "QUERY_SIZE_MAX", 4096)

    async def story(cluster: LocalCluster, broker: Broker, client: RemotingClient) -> None:
        for _ in range(20):
            message = send("t", b"x" * 1000, KEYS="k")
            assert (await client.invoke(broker.address, message, 10)).code == ResponseCode.SUCCESS
        ext = {"topic": "t", "key": "k", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}
        reply = await client.invoke(broker.address, Command(RequestCode.QUERY_MESSAGE, ext), 10)
        assert reply.code == ResponseCode.SUCCESS
        assert 1000 < len(reply.body) <= 4096

    told(tmp_path, story)
