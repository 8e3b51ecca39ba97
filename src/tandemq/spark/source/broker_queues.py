"""Queues of a live cluster as Spark's sources see them: which ones, their offsets, and their records as Arrow batches.

The cluster itself, its members and the bulk pulls belong to `tandemq.client`. Connections live in the worker process
and are shared by its tasks, one after the other.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from tandemq.client.blocking_cluster import BlockingCluster
from tandemq.client.bulk import SQL92, TAG, QueueReader
from tandemq.client.group_reader import GroupReader
from tandemq.clock import SystemClock
from tandemq.errors import ClientError, ConfigError, NoRoute, RemotingError, ReplyError, TandemError
from tandemq.formats.record import parse_record
from tandemq.formats.record import walk as walk_records
from tandemq.formats.record_starts import walk
from tandemq.model.read_from import ReadFrom
from tandemq.model.route import TopicRoute
from tandemq.model.topic import PERM_READ, QueueRef
from tandemq.spark.options import PullOptions, SchemaKind, SelectOptions
from tandemq.spark.runtime.task_log import note
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.offsets import (
    PLAIN,
    DataLost,
    Mark,
    Marks,
    Numbering,
    Offsets,
    Range,
    Ranges,
    Slice,
    key_of,
)
from tandemq.spark.source.scan import decoded, runs
from tandemq.spark.source.system_topics import is_system_topic

_JOIN_BYTES = 16 << 20
"""Pulled chunks are joined to about this size before decoding: one by one costs six times as much."""
_SAMPLE = 32
_ROUTE_SECONDS = 5.0
_ROUTES_RENEWED_MAX = 32
"""Routes asked for again in one go: with thousands of topics a trigger must not wait for all."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Asks what each of these queues holds."""

    queues: list[QueueRef]

    def __call__(self, reader: QueueReader) -> list[tuple[int, int]]:
        return reader.ranges([(queue.topic, queue.queue_id) for queue in self.queues])


@dataclass(frozen=True, slots=True)
class _MessagesAt:
    """Asks for the message at each (topic, queue id, offset)."""

    places: tuple[tuple[str, int, int], ...]

    def __call__(self, reader: QueueReader) -> list[bytes | None]:
        return reader.messages_at(self.places)


@dataclass(frozen=True, slots=True)
class _OffsetsAt:
    """Asks for the first offset stored at or after a time, of each of these queues."""

    times: Mapping[QueueRef, int]

    def __call__(self, reader: QueueReader) -> dict[QueueRef, int]:
        queues = list(self.times)
        bounds = dict(zip(queues, _Bounds(queues)(reader), strict=True))
        found = {queue: high for queue, (_, high) in bounds.items()}
        full = [queue for queue, (low, high) in bounds.items() if low < high]
        offsets = reader.offsets_at([(queue.topic, queue.queue_id, self.times[queue]) for queue in full])
        for queue, offset in zip(full, offsets, strict=True):
            low, high = bounds[queue]
            found[queue] = min(high, max(low, offset))
        return found


class _KeptRoute(NamedTuple):
    route: TopicRoute
    until: float


def _by_broker(queues: Iterable[QueueRef]) -> dict[str, list[QueueRef]]:
    found: dict[str, list[QueueRef]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


def assigned_queues(options: SelectOptions, queues: list[QueueRef], numbering: Numbering) -> list[QueueRef]:
    """Returns the queues that the option `assign` names; ConfigError for those that do not exist."""
    named = {(topic, number) for topic, numbers in options.assigned.items() for number in numbers}
    found, missing = list[QueueRef](), set(named)
    for queue in queues:
        names = {(queue.topic, numbering.number(queue)), (f"{queue.broker_name}/{queue.topic}", queue.queue_id)}
        if names & named:
            found.append(queue)
            missing -= names
    if missing:
        known = ", ".join(sorted(key_of(queue) for queue in queues)[:12])
        topic, number = min(missing)
        raise ConfigError(
            f"assign={options.assign}: there is no queue {number} of {topic!r}; there are {known or 'none'}"
        )
    return found


class BrokerAccess:
    """The queues that the options select on a live cluster."""

    def __init__(self, options: PullOptions) -> None:
        self._options = options
        self._access = options.cluster_access()
        self._cluster = BlockingCluster(self._access)
        self._readers = GroupReader(
            self._cluster,
            consumer_group=options.group_id or "TANDEMQ_SPARK",
            read_from=options.preference,
            addresses=options.read_from_addresses,
            slave_lag_max_bytes=options.slave_lag_max_bytes,
            depth=options.pull_depth,
            count=options.pull_size,
        )
        self._sizes: dict[QueueRef, float] = {}
        self._routes: dict[str, _KeptRoute] = {}
        self._numbering = PLAIN
        self._clock = SystemClock()

    @property
    def numbering(self) -> Numbering:
        return self._numbering

    def __reduce__(self) -> tuple[object, ...]:
        return access_of_process, (self._options,)

    @property
    def open_addresses(self) -> tuple[str, ...]:
        """The brokers that a connection is open to."""
        return self._readers.open_addresses

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
        counts: dict[tuple[str, str], int] = {}
        for topic, route in self._topic_routes():
            if route is None:
                if not self._options.subscribe_pattern:
                    raise NoRoute(f"no name server knows topic {topic!r}; create it (`tandemq topic create {topic}`)")
                continue
            self._readers.learn(route.groups)
            for data in route.queues:
                if data.perm & PERM_READ:
                    counts[topic, data.broker_name] = data.read_queues
                    found += (QueueRef(topic, data.broker_name, n) for n in range(data.read_queues))
        if self._options.schema is SchemaKind.KAFKA:
            self._numbering = Numbering.of(counts)
        if not self._options.assign:
            return found
        return assigned_queues(self._options, found, self._numbering)

    def _topic_routes(self) -> Iterator[tuple[str, TopicRoute | None]]:
        """Yields the route of every topic. Known ones are kept for a while: a trigger asks for a few of them only."""
        now = self._clock.monotonic()
        stale = 0
        for topic in self._topics():
            kept = self._routes.get(topic)
            if kept is not None and (now < kept.until or stale >= _ROUTES_RENEWED_MAX):
                yield topic, kept.route
                continue
            stale += kept is not None
            route = self._route(topic)
            if route is not None:
                self._routes[topic] = _KeptRoute(route, now + _ROUTE_SECONDS)
            yield topic, route

    def _route(self, topic: str) -> TopicRoute | None:
        """Returns a topic's route; one that was there before is waited for: its only broker may be restarting."""
        route = self._cluster.route(topic)
        for tries in range(self._options.retries if topic in self._routes else 0):
            if route is not None:
                break
            note(f"topic {topic} has no route at the moment; asking again")
            self._access.back_off(tries)
            route = self._cluster.route(topic)
        return route

    def ranges(self, *, complete: bool = False) -> Ranges:
        queues = self._queues()
        found: dict[QueueRef, Range] = {}
        for broker, members in _by_broker(queues).items():
            bounds = self._readers.ask(broker, _Bounds(members))
            found.update(
                {queue: Range(low, max(low, high)) for queue, (low, high) in zip(members, bounds, strict=True)}
            )
            self._ask_others(broker, found, [queue for queue in members if found[queue].first == found[queue].next])
            if complete:
                self._ask_master(broker, found, members)
        return found

    def _ask_master(self, broker: str, found: dict[QueueRef, Range], queues: list[QueueRef]) -> None:
        """Takes over where queues end on the master, if reads may go on there where the preferred member ends.

        Of members that the option readFrom names, only they are read: what these lack is told.
        """
        master, is_read = self._readers.master(broker)
        if master is None:
            if self._reads_named_replicas and self._readers.chosen[broker].behind < 0:
                note(
                    f"readFrom={self._options.read_from}: the master of {broker} can't be asked, so whether messages "
                    "are missing there is not known"
                )
            return
        with contextlib.suppress(RemotingError, ReplyError, ClientError, OSError):
            ends = {queue: high for queue, (_, high) in zip(queues, _Bounds(queues)(master), strict=True)}
            lacking = {queue: end - found[queue].next for queue, end in ends.items() if end > found[queue].next}
            if is_read:
                found.update({queue: Range(found[queue].first, ends[queue]) for queue in lacking})
            elif lacking:
                note(
                    f"readFrom={self._options.read_from}: {sum(lacking.values())} messages that the master of {broker} "
                    "has are not there yet and are not read",
                    (f"{key_of(queue)} lacks {count}" for queue, count in sorted(lacking.items())[:4]),
                )

    @property
    def _reads_named_replicas(self) -> bool:
        """Whether the user chose replicas that may lack what the master has."""
        options = self._options
        return bool(options.read_from_addresses) or options.preference is ReadFrom.OBSERVER

    def _ask_others(self, broker: str, found: dict[QueueRef, Range], empty: list[QueueRef]) -> None:
        """Asks other members for queues that look empty: a slave may not know a new topic yet."""
        for reader in self._readers.ask_others(broker) if empty else ():
            with contextlib.suppress(RemotingError, ReplyError, ClientError, OSError):
                bounds = _Bounds(empty)(reader)
                found.update(
                    {queue: Range(low, high) for queue, (low, high) in zip(empty, bounds, strict=True) if low < high}
                )

    def farthest(self, queues: list[QueueRef]) -> Ranges:
        found: dict[QueueRef, Range] = {}
        for broker, members in _by_broker(queues).items():
            for reader in (self._readers.preferred(broker), *self._readers.ask_others(broker)):
                with contextlib.suppress(RemotingError, ReplyError, ClientError, OSError):
                    for queue, (low, high) in zip(members, _Bounds(members)(reader), strict=True):
                        if queue not in found or high > found[queue].next:
                            found[queue] = Range(low, max(low, high))
        return found

    def marks_at(self, offsets: Mapping[QueueRef, int]) -> Marks:
        found: Marks = {}
        for broker, queues in _by_broker(offsets).items():
            places = tuple((queue.topic, queue.queue_id, offsets[queue]) for queue in queues)
            records = self._readers.ask(broker, _MessagesAt(places))
            for queue, record in zip(queues, records, strict=True):
                if record is not None:
                    message = parse_record(record)
                    found[queue] = Mark(message.queue_offset, message.physical_offset, message.store_timestamp)
        return found

    def at_time(self, times: Mapping[QueueRef, int]) -> Mapping[QueueRef, int]:
        found: dict[QueueRef, int] = {}
        for broker, queues in _by_broker(times).items():
            question = _OffsetsAt({queue: times[queue] for queue in queues})
            found |= self._readers.ask(broker, question)
            master, is_read = self._readers.master(broker)
            if master is not None and is_read:  # the preferred member may not have those messages yet
                with contextlib.suppress(RemotingError, ReplyError, ClientError, OSError):
                    found |= {queue: max(offset, found[queue]) for queue, offset in question(master).items()}
        return found

    def mean_size(self, queue: QueueRef, start: int, stop: int) -> float:
        """Returns the mean size of a few records at the start.

        Asks once per queue and process, since it hardly changes.
        """
        if queue not in self._sizes:

            def sample(reader: QueueReader) -> float:
                for chunk in reader.read(queue.topic, queue.queue_id, start, min(stop, start + _SAMPLE)):
                    sizes = [size for _, size, _ in walk_records(chunk.records, 0, len(chunk.records))]
                    if sizes:
                        return sum(sizes) / len(sizes)
                return 0.0

            try:
                self._sizes[queue] = self._readers.ask(queue.broker_name, sample)
            except TandemError:
                return 1024.0
        return self._sizes[queue]

    # -- reading ------------------------------------------------------------

    def read(self, piece: Slice, decoder: Decoder, rows_max: int, skip_lost: bool) -> Iterator[pa.RecordBatch]:
        queue = piece.queue
        decoder.place = lambda position: (
            f"{key_of(queue)}, a message pulled between offsets {piece.start} and {piece.stop}"
        )
        pending: list[bytes | memoryview] = []
        size = count = 0
        enough = 0  # the first chunk is handed over as it is: a LIMIT takes no more, and should not wait for more
        for records, messages in self._chunks(piece, skip_lost):
            pending.append(records)
            size += len(records)
            count += messages
            if size >= enough or count >= rows_max:
                yield from _decoded(pending, decoder, rows_max)
                pending, size, count, enough = [], 0, 0, _JOIN_BYTES
        yield from _decoded(pending, decoder, rows_max)
        yield from decoder.leftovers()

    def _chunks(self, piece: Slice, skip_lost: bool) -> Iterator[tuple[bytes | memoryview, int]]:
        """Yields raw records of the slice from whichever member can serve them; goes on where a broken read stopped."""
        queue = piece.queue

        def on_gap(expected: int, found: int) -> None:
            text = f"{key_of(queue)}: offsets {expected} to {found - 1} were deleted before they were read"
            if not skip_lost:
                raise DataLost(f"{text} (failOnDataLoss=false reads on from the first message left)")
            note(text)

        expression, kind = self._expression()
        return self._readers.read(
            queue, piece.start, piece.stop, on_gap=on_gap, expression=expression, expression_type=kind
        )

    def _expression(self) -> tuple[str, str]:
        """Returns the filter that the broker applies, and its kind."""
        if self._options.sql:
            return self._options.sql, SQL92
        tags = self._options.wanted_tags
        return (" || ".join(sorted(tags)) if tags else "*"), TAG

    @property
    def replicas(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"address": chosen.address, "behind": chosen.behind} for name, chosen in self._readers.chosen.items()
        }

    # -- progress ------------------------------------------------------------

    def commit_group(self, group: str, done: Offsets) -> None:
        by_broker: dict[str, dict[QueueRef, int]] = {}
        for queue, offset in done.items():
            by_broker.setdefault(queue.broker_name, {})[queue] = offset
        for broker, offsets in by_broker.items():
            try:
                self._cluster.commit(self._readers.group(broker), group, offsets)
            except (TandemError, OSError) as error:
                note(f"progress of group {group} was not committed to {broker}: {error}")


@lru_cache(maxsize=64)
def access_of_process(options: PullOptions) -> BrokerAccess:
    """Returns one access for all tasks of a worker process.

    Asking who is in sync costs more than a small micro-batch.
    """
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
