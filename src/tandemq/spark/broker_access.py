"""Queues of a live cluster: routes, offsets and bulk pulls over blocking sockets; one event loop less in every worker.

Whoever of a broker group answers may serve a read: the preferred member first, then the others, and a broken read goes
on from where it was. Connections live in the worker process and are shared by its tasks, one after the other.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import pyarrow as pa

from tandemq.client.bulk import BlockingLink, Credentials, QueueReader
from tandemq.clock import SystemClock
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.record import walk as walk_records
from tandemq.errors import ClientError, ConfigError, ConnectFailed, NoRoute, RemotingError, ReplyError, TandemError
from tandemq.model.route import BrokerGroup, TopicRoute
from tandemq.model.topic import PERM_READ, QueueRef
from tandemq.spark.decoder import Decoder
from tandemq.spark.notes import note
from tandemq.spark.offsets import DataLost, Offsets, Range, Ranges, Slice, key_of
from tandemq.spark.options import ConnectOptions, PullOptions, ReadFrom
from tandemq.spark.pause import pause
from tandemq.spark.scan import decoded, runs
from tandemq.spark.topics import is_system_topic
from tandemq.spark.walk import walk

Answer = TypeVar("Answer")

_JOIN_BYTES = 16 << 20
"""Pulled chunks are joined to about this size before decoding: one by one costs six times as much."""
_CHOICE_SECONDS = 5.0
"""How long a choice of slave or master is kept."""
_SAMPLE = 32
_PAUSE_SECONDS_MAX = 10.0


class Chosen(NamedTuple):
    """The members of a group in the order in which to ask them."""

    addresses: tuple[str, ...]
    until: float


class _NobodyAnswers(NoRoute):
    """No name server gave an answer."""

    def __init__(self, text: str, may_be_busy: bool) -> None:
        super().__init__(text)
        self.may_be_busy = may_be_busy


def backoff(options: ConnectOptions, tries: int) -> None:
    """Waits before the next try, longer each time."""
    pause(min(_PAUSE_SECONDS_MAX, options.retry_interval_ms / 1000 * 2 ** min(tries, 20)))


class Cluster:
    """Routes and members of a cluster, asked over one blocking link to a name server."""

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self._addresses = [a.strip() for a in options.nameserver.replace(",", ";").split(";") if a.strip()]
        self._link: BlockingLink | None = None
        self._answered = False

    def credentials(self) -> Credentials | None:
        options = self._options
        return Credentials(options.access_key, options.secret_key) if options.access_key else None

    def _ask(self, code: int, fields: dict[str, str]) -> bytes | None:
        """The body of a name server's answer, None if it does not know; all are tried, several times if need be."""
        tries = 0
        while True:
            try:
                return self._ask_each(code, fields)
            except _NobodyAnswers as error:
                # A refused connection before any answer is a wrong address: no use in making the user wait.
                if tries >= self._options.retries or not (self._answered or error.may_be_busy):
                    raise
                note(f"{error}; asking again")
                backoff(self._options, tries)
                tries += 1

    def _ask_each(self, code: int, fields: dict[str, str]) -> bytes | None:
        problems: list[RemotingError] = []
        for address in list(self._addresses):
            try:
                reply = self._call(address, code, fields)
            except RemotingError as error:
                self._link = None
                problems.append(error)
                self._addresses.append(self._addresses.pop(0))
                continue
            self._answered = True
            if reply.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            return bytes(reply.raise_for_code().body)
        said = "; ".join(map(str, problems))
        raise _NobodyAnswers(
            f"nameserver={self._options.nameserver!r}: none answers: {said}",
            any(not isinstance(problem, ConnectFailed) for problem in problems),
        )

    def _call(self, address: str, code: int, fields: dict[str, str]) -> Command:
        """One request; over the link that is open already if it still works."""
        if self._link is not None and self._link.address == address:
            try:
                return self._link.call(code, fields)
            except RemotingError:
                self._link.close()  # open since the last micro-batch or longer: it says nothing about the server now
        self._link = BlockingLink(
            address, timeout=self._options.request_timeout_ms / 1000, credentials=self.credentials()
        )
        return self._link.call(code, fields)

    def route(self, topic: str) -> TopicRoute | None:
        body = self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        return bodies.topic_route_of(fastjson.loads(body)) if body else None

    def topics(self) -> list[str]:
        body = self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        return sorted(fastjson.loads(body).get("topicList", [])) if body else []

    def groups(self) -> dict[str, BrokerGroup]:
        body = self._ask(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        return bodies.cluster_info_of(fastjson.loads(body))[0] if body else {}


_readers: dict[tuple[str, str, int, int, int], QueueReader] = {}
"""Open connections of this worker process."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Asks what each of these queues holds."""

    queues: list[QueueRef]

    def __call__(self, reader: QueueReader) -> list[tuple[int, int]]:
        return [reader.range(queue.topic, queue.queue_id) for queue in self.queues]


@dataclass(frozen=True, slots=True)
class _OffsetAt:
    """Asks for the first offset stored at or after a time."""

    queue: QueueRef
    time: int

    def __call__(self, reader: QueueReader) -> int:
        low, high = reader.range(self.queue.topic, self.queue.queue_id)
        if low == high:
            return high
        return min(high, max(low, reader.offset_at(self.queue.topic, self.queue.queue_id, self.time)))


class BrokerAccess:
    """The queues that the options select on a live cluster."""

    def __init__(self, options: PullOptions) -> None:
        self._options = options
        self._cluster = Cluster(options)
        self._clock = SystemClock()
        self._groups: dict[str, BrokerGroup] = {}
        self._choices: dict[str, Chosen] = {}
        self._sizes: dict[QueueRef, float] = {}
        self._seen: set[str] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return access_of_process, (self._options,)

    # -- which queues ------------------------------------------------------------------------------------

    def _topics(self) -> list[str]:
        options = self._options
        if options.subscribe:
            return list(options.topics)
        if options.assign:
            return sorted({name.rpartition("/")[2] for name in options.assigned})
        return [t for t in self._cluster.topics() if options.selects(t, system=is_system_topic(t))]

    def _queues(self) -> list[QueueRef]:
        found: list[QueueRef] = []
        for topic in self._topics():
            route = self._route(topic)
            if route is None:
                if not self._options.subscribe_pattern:
                    raise NoRoute(f"no name server knows topic {topic!r}; create it (`tandemq topic create {topic}`)")
                continue
            self._groups.update({group.name: group for group in route.groups})
            for data in route.queues:
                if data.perm & PERM_READ:
                    found += (QueueRef(topic, data.broker_name, n) for n in range(data.read_queues))
        return [queue for queue in found if self._options.selects_queue(queue)]

    def _route(self, topic: str) -> TopicRoute | None:
        """A topic that was there a moment ago is waited for: its only broker may be restarting."""
        route = self._cluster.route(topic)
        for tries in range(self._options.retries if topic in self._seen else 0):
            if route is not None:
                break
            note(f"topic {topic} has no route at the moment; asking again")
            backoff(self._options, tries)
            route = self._cluster.route(topic)
        if route is not None:
            self._seen.add(topic)
        return route

    def ranges(self) -> Ranges:
        queues = self._queues()
        if self._options.assign and not queues:
            raise ConfigError(f"assign={self._options.assign}: the cluster has none of these queues")
        found: dict[QueueRef, Range] = {}
        by_broker: dict[str, list[QueueRef]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        for broker, members in by_broker.items():
            bounds = self._with_member(broker, _Bounds(members))
            found.update(
                {queue: Range(low, max(low, high)) for queue, (low, high) in zip(members, bounds, strict=True)}
            )
            self._ask_others(broker, found, [queue for queue in members if found[queue].first == found[queue].next])
        return found

    def _ask_others(self, broker: str, found: dict[QueueRef, Range], empty: list[QueueRef]) -> None:
        """A slave may not know a new topic yet: queues that look empty there are asked for elsewhere too."""
        for address in self._members(broker)[1:] if empty else ():
            with contextlib.suppress(RemotingError, ReplyError, ClientError, OSError):
                bounds = _Bounds(empty)(self._reader(address))
                found.update(
                    {queue: Range(low, high) for queue, (low, high) in zip(empty, bounds, strict=True) if low < high}
                )

    def at_time(self, times: Mapping[QueueRef, int]) -> Mapping[QueueRef, int]:
        found = {}
        for queue, time in times.items():
            found[queue] = self._with_member(queue.broker_name, _OffsetAt(queue, time))
        return found

    def mean_size(self, queue: QueueRef, start: int, stop: int) -> float:
        """From a few records at the start; asked once per queue and process, sizes of a queue hardly change."""
        if queue not in self._sizes:

            def sample(reader: QueueReader) -> float:
                for chunk in reader.read(queue.topic, queue.queue_id, start, min(stop, start + _SAMPLE)):
                    sizes = [size for _, size, _ in walk_records(chunk.records, 0, len(chunk.records))]
                    if sizes:
                        return sum(sizes) / len(sizes)
                return 0.0

            try:
                self._sizes[queue] = self._with_member(queue.broker_name, sample)
            except TandemError:
                return 1024.0
        return self._sizes[queue]

    # -- members of a group ------------------------------------------------------------

    def _members(self, broker: str) -> tuple[str, ...]:
        """Addresses of a group, the preferred ones first."""
        known = self._choices.get(broker)
        if known is not None and self._clock.monotonic() < known.until:
            return known.addresses
        group = self._groups.get(broker) or self._refreshed(broker)
        slaves = [address for broker_id, address in sorted(group.addresses.items()) if broker_id]
        masters = [group.master] if group.master else []
        mode = self._options.read_from
        if mode is ReadFrom.MASTER:
            order = masters
        elif mode is ReadFrom.ANY:
            order = masters + slaves
        else:
            order = self._in_sync_first(masters, slaves)
        if not order:
            raise NoRoute(
                f"broker {broker!r} has no member to read from with readFrom={mode.value}; it has "
                f"{dict(group.addresses)}"
            )
        self._choices[broker] = Chosen(tuple(order), self._clock.monotonic() + _CHOICE_SECONDS)
        return tuple(order)

    def _in_sync_first(self, masters: list[str], slaves: list[str]) -> list[str]:
        """Slaves close to the master, then the master, then slaves that lag: they still have most of it."""
        if not slaves:
            return masters
        end = max((self._log_end(address) for address in masters), default=-1)
        ends = {slave: self._log_end(slave) for slave in slaves}
        close = [s for s in slaves if ends[s] >= 0 and end - ends[s] <= self._options.slave_lag_max_bytes]
        return close + masters + [s for s in slaves if s not in close]

    def _log_end(self, address: str) -> int:
        """The end of a broker's log; -1 if it does not answer, so that it is asked last."""
        try:
            link = BlockingLink(
                address, timeout=self._options.request_timeout_ms / 1000, credentials=self._cluster.credentials()
            )
            try:
                reply = link.call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
                table = fastjson.loads(bytes(reply.raise_for_code().body)).get("table", {})
                return int(table.get("commitLogMaxOffset", 0))
            finally:
                link.close()
        except (TandemError, OSError, ValueError):
            return -1

    def _refreshed(self, broker: str) -> BrokerGroup:
        self._groups.update(self._cluster.groups())
        if broker not in self._groups:
            raise NoRoute(f"no name server knows broker {broker!r} any more")
        return self._groups[broker]

    def _reader(self, address: str) -> QueueReader:
        options = self._options
        key = (address, options.group_id, options.pull_size, options.pull_depth, options.request_timeout_ms)
        if key not in _readers:
            _readers[key] = QueueReader(
                address,
                group=options.group_id or "TANDEMQ_SPARK",
                timeout=options.request_timeout_ms / 1000,
                depth=options.pull_depth,
                count=options.pull_size,
                credentials=self._cluster.credentials(),
            )
        return _readers[key]

    def _drop(self, address: str) -> None:
        for key in [key for key in _readers if key[0] == address]:
            _readers.pop(key).close()

    def _failed(self, broker: str, address: str, error: Exception, tries: int) -> None:
        """After a failure: forget what may be stale; pause once all members were tried; give up when tries are
        used up.
        """
        self._drop(address)
        known = self._choices.get(broker)
        members = len(known.addresses) if known is not None else 1
        if tries > self._options.retries * members:
            raise error
        if tries % members == 0:
            backoff(self._options, tries // members - 1)
            self._choices.pop(broker, None)
            self._groups.pop(broker, None)

    def _with_member(self, broker: str, ask: Callable[[QueueReader], Answer]) -> Answer:
        tries = 0
        while True:
            address = ""
            try:
                # Inside, for a group that is restarting may be unknown to the name servers for a while.
                members = self._members(broker)
                address = members[tries % len(members)]
                return ask(self._reader(address))
            except (RemotingError, ReplyError, ClientError, OSError) as error:
                tries += 1
                self._failed(broker, address, error, tries)

    # -- reading ------------------------------------------------------------

    def read(self, piece: Slice, decoder: Decoder, rows_max: int, skip_lost: bool) -> Iterator[pa.RecordBatch]:
        queue = piece.queue
        decoder.place = lambda position: (
            f"{key_of(queue)}, a message pulled between offsets {piece.start} and {piece.stop}"
        )
        pending: list[bytes | memoryview] = []
        size = count = 0
        for records, messages in self._chunks(piece, skip_lost):
            pending.append(records)
            size += len(records)
            count += messages
            if size >= _JOIN_BYTES or count >= rows_max:
                yield from _decoded(pending, decoder, rows_max)
                pending, size, count = [], 0, 0
        yield from _decoded(pending, decoder, rows_max)
        yield from decoder.leftovers()

    def _chunks(self, piece: Slice, skip_lost: bool) -> Iterator[tuple[bytes | memoryview, int]]:
        """Raw records of the slice, from whichever member can serve them; goes on where a broken read stopped."""
        queue, position, tries = piece.queue, piece.start, 0

        def on_gap(expected: int, found: int) -> None:
            text = f"{key_of(queue)}: offsets {expected} to {found - 1} were deleted before they were read"
            if not skip_lost:
                raise DataLost(f"{text} (failOnDataLoss=false reads on from the first message left)")
            note(text)

        while position < piece.stop:
            address = ""
            try:
                members = self._members(queue.broker_name)
                address = members[tries % len(members)]
                for chunk in self._reader(address).read(
                    queue.topic, queue.queue_id, position, piece.stop, on_gap=on_gap
                ):
                    if len(chunk.records):
                        yield chunk.records, chunk.next_offset - position
                    position, tries = chunk.next_offset, 0
                return
            except GeneratorExit:
                # A LIMIT stopped us with pulls under way: their answers would be taken for those of the next read.
                self._drop(address)
                raise
            except (RemotingError, ReplyError, ClientError, OSError) as error:
                tries += 1
                note(f"{key_of(queue)} at {position}: {error}; trying the next member")
                self._failed(queue.broker_name, address, error, tries)

    # -- progress ------------------------------------------------------------

    def commit_group(self, group: str, done: Offsets) -> None:
        by_broker: dict[str, list[tuple[QueueRef, int]]] = {}
        for queue, offset in done.items():
            by_broker.setdefault(queue.broker_name, []).append((queue, offset))
        for broker, items in by_broker.items():
            try:
                known = self._groups.get(broker) or self._refreshed(broker)
                self._commit_to(known, group, items)
            except (TandemError, OSError) as error:
                note(f"progress of group {group} was not committed to {broker}: {error}")

    def _commit_to(self, target: BrokerGroup, group: str, items: list[tuple[QueueRef, int]]) -> None:
        address = target.master or next(iter(target.addresses.values()))
        link = BlockingLink(
            address, timeout=self._options.request_timeout_ms / 1000, credentials=self._cluster.credentials()
        )
        try:
            asked = [
                link.send(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {
                        "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
                        "commitOffset": str(offset),
                    },
                )
                for queue, offset in items
            ]  # fmt: skip
            for opaque in asked:
                link.wait(opaque).raise_for_code()
        finally:
            link.close()


@lru_cache(maxsize=64)
def access_of_process(options: PullOptions) -> BrokerAccess:
    """One for all tasks of a worker process: asking all members who is in sync costs more than a small micro-batch."""
    return BrokerAccess(options)


def _decoded(chunks: list[bytes | memoryview], decoder: Decoder, rows_max: int) -> Iterator[pa.RecordBatch]:
    if not chunks:
        return
    buffer = chunks[0] if len(chunks) == 1 and isinstance(chunks[0], bytes) else b"".join(chunks)
    found = walk(buffer, 0, len(buffer), len(buffer))
    for positions in runs(found.positions):
        yield from decoded(decoder, buffer, positions, None, rows_max)
    if found.next != len(buffer):
        decoder.report(
            0,
            f"{decoder.place(found.next)}: {len(buffer) - found.next} bytes that are no message",
            len(buffer) - found.next,
        )
