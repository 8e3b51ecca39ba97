"""Sends batches to the masters of a cluster and lets go of one only when it is acknowledged.

Per broker: one connection, several sends under way, all unacknowledged batches kept in order. When a connection breaks,
a broker refuses for the moment or a copy was not made in time, the master is looked up again (it may be another node by
now) and everything unacknowledged is sent again, in order. That may store a message twice: the keys tell
(`idempotent_key`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tandemq.client.bulk import Ack, BatchSender
from tandemq.clock import Clock, SystemClock
from tandemq.codec.codes import ResponseCode
from tandemq.errors import ConfigError, NoRoute, RemotingError, ReplyError, TandemError
from tandemq.model.topic import AUTO_CREATE_TOPIC, PERM_WRITE, QueueRef
from tandemq.spark.broker_access import Cluster, backoff
from tandemq.spark.notes import note
from tandemq.spark.options import Delivery, SinkOptions
from tandemq.spark.pause import pause

_FINAL = frozenset(
    {
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    }
)
"""Refusals that trying again does not change."""
_TEMPLATE_QUEUES_MAX = 8
WAIT_STORED = "WAIT\x01true\x02"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One send: a batch, or a single message."""

    queue: QueueRef
    data: bytes
    count: int
    sys_flag: int
    properties: str
    single: bool = False


class Sent(NamedTuple):
    """What a task wrote."""

    messages: int
    size: int


class Sender:
    """All sends of one task."""

    def __init__(self, options: SinkOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self.cluster = Cluster(options)
        self._queues: dict[str, tuple[QueueRef, ...]] = {}
        self._masters: dict[str, str] = {}
        self._channels: dict[str, _Channel] = {}
        self._rate = _Rate(options.max_rate, self._clock)
        self.sent = Sent(0, 0)
        self.on_ack: Callable[[Outgoing, Ack], None] | None = None
        """Told of each acknowledged send, in order."""

    def queues(self, topic: str) -> tuple[QueueRef, ...]:
        """The queues of a topic that can be written, in a fixed order; a new topic's come from the template."""
        if topic not in self._queues:
            route = self.cluster.route(topic)
            created = route is None
            route = route or self.cluster.route(AUTO_CREATE_TOPIC)
            if route is None:
                raise NoRoute(f"no name server knows topic {topic!r}; create it (`tandemq topic create {topic}`)")
            masters = {group.name: group.master for group in route.groups if group.master}
            self._masters.update(masters)
            found: list[QueueRef] = []
            for data in sorted(route.queues, key=lambda q: q.broker_name):
                if data.perm & PERM_WRITE and data.broker_name in masters:
                    count = min(data.write_queues, _TEMPLATE_QUEUES_MAX) if created else data.write_queues
                    found += (QueueRef(topic, data.broker_name, n) for n in range(count))
            if not found:
                raise NoRoute(f"topic {topic!r} has no queue that can be written: no master is up, or it is read-only")
            self._queues[topic] = tuple(found)
        return self._queues[topic]

    def queue(self, topic: str, queue_id: int) -> QueueRef:
        """The queue with this number; with several brokers, the first broker's."""
        for queue in self.queues(topic):
            if queue.queue_id == queue_id:
                return queue
        known = sorted({queue.queue_id for queue in self.queues(topic)})
        raise ConfigError(f"column `queue_id`: {topic!r} has no queue {queue_id}; it has {known[0]} to {known[-1]}")

    def master(self, broker: str, *, fresh: bool = False) -> str:
        """The address of a broker group's master; waits a while for one when there is none (a promotion takes time)."""
        if not fresh and broker in self._masters:
            return self._masters[broker]
        group = self.cluster.groups().get(broker)
        if group is None or not group.master:
            raise NoRoute(f"broker {broker!r} has no master at the moment")
        self._masters[broker] = group.master
        return group.master

    def send(self, outgoing: Outgoing) -> None:
        self._rate.take(outgoing.count)
        broker = outgoing.queue.broker_name
        if broker not in self._channels:
            self._channels[broker] = _Channel(self, broker, self._options)
        self._channels[broker].send(outgoing)
        self.sent = Sent(self.sent.messages + outgoing.count, self.sent.size + len(outgoing.data))

    def flush(self) -> None:
        """Returns when every send was acknowledged as required."""
        for channel in self._channels.values():
            channel.flush()

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


class _Channel:
    """Everything on its way to one broker group."""

    def __init__(self, owner: Sender, broker: str, options: SinkOptions) -> None:
        self._owner = owner
        self._broker = broker
        self._options = options
        self._strict = bool(options.copies) or options.delivery is Delivery.EXACTLY_ONCE
        self._link: BatchSender | None = None
        self._unacknowledged: deque[Outgoing] = deque()
        self._told = False

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def send(self, outgoing: Outgoing) -> None:
        self._unacknowledged.append(outgoing)
        self._again(lambda: self._push(outgoing), resent=outgoing)

    def flush(self) -> None:
        while self._unacknowledged:
            self._again(self._drain, resent=None)

    def _push(self, outgoing: Outgoing) -> None:
        link = self._connected()
        acks = link.send(
            outgoing.queue.topic,
            outgoing.queue.queue_id,
            outgoing.data,
            tag=outgoing,
            properties=outgoing.properties,
            sys_flag=outgoing.sys_flag,
            single=outgoing.single,
        )
        for ack in acks:
            self._acknowledge(ack)

    def _drain(self) -> None:
        for ack in self._connected().flush():
            self._acknowledge(ack)

    def _acknowledge(self, ack: Ack) -> None:
        status = ack.status
        assert self._unacknowledged
        assert self._unacknowledged[0] is ack.tag
        if status != ResponseCode.SUCCESS:
            text = f"{self._broker} stored a batch but not all copies: {ResponseCode(status).name}"
            if self._strict:
                raise ReplyError(status, text)
            if not self._told:
                note(text)
                self._told = True
        done = self._unacknowledged.popleft()
        if self._owner.on_ack is not None:
            self._owner.on_ack(done, ack)

    def _connected(self) -> BatchSender:
        if self._link is None:
            self._link = BatchSender(
                self._owner.master(self._broker),
                group=self._options.producer_group,
                timeout=self._options.request_timeout_ms / 1000,
                depth=self._options.in_flight,
                credentials=self._owner.cluster.credentials(),
            )
        return self._link

    def _again(self, step: Callable[[], None], resent: Outgoing | None) -> None:
        """Does a step; after a failure reconnects and sends all that is unacknowledged again, until tries run out."""
        tries = 0
        while True:
            try:
                if tries:
                    self._owner.master(self._broker, fresh=True)
                    for outgoing in list(self._unacknowledged):
                        self._push(outgoing)
                else:
                    step()
                return
            except (RemotingError, ReplyError, NoRoute, OSError) as error:
                if isinstance(error, ReplyError) and error.code in _FINAL:
                    raise
                self.close()
                tries += 1
                if tries > self._options.retries:
                    raise TandemError(
                        f"{self._broker}: {len(self._unacknowledged)} sends were not acknowledged after "
                        f"{tries} tries: {error}"
                    ) from error
                note(f"{self._broker}: {error}; sending {len(self._unacknowledged)} unacknowledged batches again")
                backoff(self._options, tries - 1)


class _Rate:
    """At most so many messages per second, smoothed over a second."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._per_second = per_second
        self._clock = clock
        self._free_at = clock.monotonic()

    def take(self, count: int) -> None:
        if not self._per_second:
            return
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now - 1.0) + count / self._per_second
        if self._free_at > now:
            pause(self._free_at - now)
