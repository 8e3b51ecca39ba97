"""A cluster without sockets for tests of the client: one name server and brokers that are dictionaries.

`FakeCluster.session()` gives a real Session whose requests are answered here, in the same turn of the loop or when a
test says so. Every answer can be replaced: `cluster.on[RequestCode.X] = function(address, command)`; the function
returns a Command, raises, or is a coroutine function.
"""

import asyncio
import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

from tandemq.client.config import ClientConfig, ConsumeFrom
from tandemq.client.session import Session
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.codec.send_header import send_header_of
from tandemq.errors import ConnectFailed, ConnectionLost, RequestTimeout
from tandemq.formats.record import encode_record
from tandemq.model.route import BrokerGroup, QueueData, TopicRoute
from tandemq.model.topic import QueueRef

NAMESRV = "namesrv:1"
HOST = bytes([127, 0, 0, 1, 0, 0, 0, 1])
Answering = Callable[[str, Command], Any]


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes a test of a coroutine function."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def turns(count: int = 20) -> None:
    """Lets everything happen that can happen without time passing."""
    for _ in range(count):
        await asyncio.sleep(0)


class ManualClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


class FakeCluster:
    """Topics with queues on brokers; each broker name has addresses by broker id."""

    def __init__(self, *, queues: int = 1, brokers: dict[str, dict[int, str]] | None = None) -> None:
        self.brokers = brokers or {"a": {0: "a:1"}}
        self.topics: dict[str, int] = {"T": queues}
        self.records: dict[QueueRef, list[bytes]] = defaultdict(list)
        self.offsets: dict[tuple[str, QueueRef], int] = {}
        self.members: dict[str, set[str]] = defaultdict(set)
        self.locks: dict[tuple[str, QueueRef], str] = {}
        self.sent: list[tuple[str, str, bytes]] = []
        """(address, topic, body) of every send."""
        self.sent_back: list[tuple[int, int]] = []
        """(physical offset, delay level) of every message given back."""
        self.requests: list[tuple[str, int]] = []
        """(address, code) of every request."""
        self.commands: list[Command] = []
        self.dead: set[str] = set()
        """Addresses that refuse connections."""
        self.hung: set[str] = set()
        """Addresses that never answer."""
        self.arrived = asyncio.Event()
        self.on: dict[int, Answering] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MAX_OFFSET: lambda a, c: _offset(len(self.records[self.queue(a, c)])),
            RequestCode.GET_MIN_OFFSET: lambda a, c: _offset(0),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda a, c: _offset(0),
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._send,
            RequestCode.END_TRANSACTION: lambda a, c: Command(0),
            RequestCode.CHECK_CLIENT_CONFIG: lambda a, c: Command(0),
        }

    def session(self, **options: Any) -> Session:
        clock = options.pop("clock", None)
        session = Session(
            ClientConfig(namesrv=NAMESRV, **{"consume_from": ConsumeFrom.FIRST_OFFSET, **options}), clock=clock
        )
        session.remoting = FakeRemoting(self)  # type: ignore[assignment]
        return session

    def count(self, code: int) -> int:
        """How often a request came."""
        return sum(asked == code for _, asked in self.requests)

    # answers

    async def answer(self, address: str, command: Command) -> Command:
        self.requests.append((address, command.code))
        self.commands.append(command)
        if address in self.dead:
            raise ConnectFailed(f"{address}: refused")
        if address in self.hung:
            await asyncio.Event().wait()
        found = self.on[command.code](address, command)
        if inspect.isawaitable(found):
            found = await found
        assert isinstance(found, Command)
        return found

    def queue(self, address: str, command: Command) -> QueueRef:
        return QueueRef(command.ext["topic"], self.name_of(address), int(command.ext["queueId"]))

    def name_of(self, address: str) -> str:
        return next(name for name, members in self.brokers.items() if address in members.values())

    def route(self, topic: str) -> TopicRoute | None:
        count = 1 if topic.startswith("%RETRY%") else self.topics.get(topic)
        if count is None:
            return None
        return TopicRoute(
            queues=tuple(
                QueueData(broker_name=name, read_queues=count, write_queues=count, perm=6) for name in self.brokers
            ),
            groups=tuple(BrokerGroup(cluster="c", name=name, addresses=at) for name, at in self.brokers.items()),
        )

    def _route(self, _: str, command: Command) -> Command:
        route = self.route(command.ext["topic"])
        if route is None:
            return Command(ResponseCode.TOPIC_NOT_EXIST, remark="unknown")
        return Command(0, None, fastjson.dumps(bodies.topic_route_json(route)))

    def _cluster_info(self, _: str, __: Command) -> Command:
        found = {name: {"brokerName": name, "cluster": "c", "brokerAddrs": at} for name, at in self.brokers.items()}
        return Command(
            0, None, fastjson.dumps({"brokerAddrTable": found, "clusterAddrTable": {"c": sorted(self.brokers)}})
        )

    def _heartbeat(self, _: str, command: Command) -> Command:
        beat = fastjson.loads(bytes(command.body))
        for consumer in beat.get("consumerDataSet", []):
            self.members[consumer["groupName"]].add(beat["clientID"])
        return Command(0)

    def _unregister(self, _: str, command: Command) -> Command:
        self.members[command.ext.get("consumerGroup", "")].discard(command.ext["clientID"])
        return Command(0)

    def _members(self, _: str, command: Command) -> Command:
        found = sorted(self.members[command.ext["consumerGroup"]])
        return Command(0, None, fastjson.dumps({"consumerIdList": found}))

    def _query_offset(self, address: str, command: Command) -> Command:
        found = self.offsets.get((command.ext["consumerGroup"], self.queue(address, command)))
        return Command(ResponseCode.QUERY_NOT_FOUND, remark="none") if found is None else _offset(found)

    def _update_offset(self, address: str, command: Command) -> Command:
        key = command.ext["consumerGroup"], self.queue(address, command)
        self.offsets[key] = int(command.ext["commitOffset"])
        return Command(0)

    async def _pull(self, address: str, command: Command) -> Command:
        queue, offset = self.queue(address, command), int(command.ext["queueOffset"])
        while len(self.records[queue]) <= offset:
            if not int(command.ext["suspendTimeoutMillis"]):
                return pull_answer(ResponseCode.PULL_NOT_FOUND, offset)
            self.arrived.clear()
            await self.arrived.wait()
        found = self.records[queue][offset : offset + int(command.ext["maxMsgNums"])]
        return pull_answer(0, offset + len(found), b"".join(found))

    def _lock(self, address: str, command: Command) -> Command:
        asked = fastjson.loads(bytes(command.body))
        granted = []
        for item in asked["mqSet"]:
            holder = self.locks.setdefault((asked["consumerGroup"], bodies.queue_of(item)), asked["clientId"])
            if holder == asked["clientId"]:
                granted.append(item)
        return Command(0, None, fastjson.dumps({"lockOKMQSet": granted}))

    def _unlock(self, _: str, command: Command) -> Command:
        asked = fastjson.loads(bytes(command.body))
        for item in asked["mqSet"]:
            self.locks.pop((asked["consumerGroup"], bodies.queue_of(item)), None)
        return Command(0)

    def _send_back(self, _: str, command: Command) -> Command:
        self.sent_back.append((int(command.ext["offset"]), int(command.ext["delayLevel"])))
        return Command(0)

    def _send(self, address: str, command: Command) -> Command:
        header = send_header_of(command.ext, command.code, command.version)
        self.sent.append((address, header.topic, bytes(command.body)))
        ids = ",".join(["00" * 16] * (bytes(command.body).count(b"\x01true\x02UNIQ_KEY") or 1))
        return Command(0, {"msgId": ids, "queueId": str(header.queueId), "queueOffset": str(len(self.sent) - 1)})

    # messages

    def store(self, *payloads: bytes, queue: QueueRef | None = None, **properties: str) -> None:
        """Puts messages into a queue and wakes the pulls that wait."""
        where = queue or QueueRef("T", "a", 0)
        for body in payloads:
            place = len(self.records[where])
            self.records[where].append(record(body, place, where, **properties))
        self.arrived.set()


def record(body: bytes, offset: int, queue: QueueRef = QueueRef("T", "a", 0), **properties: str) -> bytes:
    """A record as brokers send it."""
    return encode_record(
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        physical_offset=offset * 1000,
        born_timestamp=1,
        born_host=HOST,
        store_timestamp=2,
        store_host=HOST,
        body=body,
        properties="".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode(),
    )


def pull_answer(code: int, next_offset: int, records: bytes = b"") -> Command:
    ext = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "0", "nextBeginOffset": str(next_offset)}
    return Command(code, ext, records, remark=None if code == 0 else "nothing")


def _offset(value: int) -> Command:
    return Command(0, {"offset": str(value)})


class FakeRemoting:
    """Stands in for RemotingClient."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.handlers: dict[int, Any] = {}
        self.closed = False

    async def invoke(self, address: str, command: Command, timeout: float) -> Command:
        if self.closed:
            raise ConnectionLost(f"{address}: the client was closed")
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(0)  # an answer never comes in the turn of its request
                return await self._cluster.answer(address, command)
        except TimeoutError:
            raise RequestTimeout(f"{address}: no answer within {timeout:g} s") from None

    async def invoke_oneway(self, address: str, command: Command, timeout: float = 3.0) -> None:
        await self._cluster.answer(address, command)

    async def connection(self, address: str, timeout: float = 3.0) -> "FakeConnection":
        if address in self._cluster.dead:
            raise ConnectFailed(f"{address}: refused")
        return FakeConnection(self, address)

    async def close(self) -> None:
        self.closed = True


class FakeConnection:
    """Stands in for a connection of the pipelined producer."""

    is_writable = True
    signer = None

    def __init__(self, remoting: FakeRemoting, address: str) -> None:
        self._remoting = remoting
        self._address = address
        self.peer = address
        self.oneways: list[Command] = []

    def start_request(self, encode: Callable[[int], bytes], waiter: Any, timeout: float) -> None:
        (frame,) = FrameReader(1 << 24, 1 << 20).feed(encode(1))
        command = decode_command(frame)

        async def answered() -> None:
            try:
                reply = await self._remoting.invoke(self._address, command, timeout)
            except (ConnectFailed, ConnectionLost, RequestTimeout) as error:
                waiter.set_exception(error)
            else:
                waiter.set_result(reply)

        self._task = asyncio.get_running_loop().create_task(answered())

    def send_oneway(self, command: Command) -> None:
        self.oneways.append(command)
