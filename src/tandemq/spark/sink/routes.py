"""Where a sink can write: the queues of topics, and the masters of broker groups.

All tasks of a worker process share connections and routes; each write or micro-batch asks for routes anew, so that it
sees new queues. A group without a master is waited for, because a promotion takes some seconds; a topic that nobody
knows is an error at once.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from tandemq.client.blocking_cluster import BlockingCluster
from tandemq.clock import Clock, SystemClock
from tandemq.codec.codes import RequestCode
from tandemq.errors import NoRoute
from tandemq.model.route import TopicRoute
from tandemq.model.topic import AUTO_CREATE_TOPIC, PERM_READ, PERM_WRITE, QueueRef
from tandemq.spark.options import SinkOptions
from tandemq.spark.runtime.task_log import note

KEPT_SECONDS = 30.0
"""As long as RocketMQ's clients keep a route."""
NEW_TOPIC_QUEUES_MAX = 4
"""Queues per broker of a topic that the first send makes (defaultTopicQueueNums of RocketMQ's producers)."""


Answer = TypeVar("Answer")


class NoMaster(NoRoute):
    """There is nobody to write to at the moment."""


class _Kept(NamedTuple):
    queues: tuple[QueueRef, ...]
    until: float


class WriteRoutes:
    """The queues and masters of one cluster, as the sink's options reach it."""

    def __init__(
        self, options: SinkOptions, *, clock: Clock | None = None, cluster: BlockingCluster | None = None
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self.access = options.cluster_access()
        self._cluster = cluster or BlockingCluster(self.access)
        self._queues: dict[str, _Kept] = {}
        self._masters: dict[str, str] = {}
        self._write = ""

    def begin(self, write: str) -> None:
        """Begins a write or micro-batch: asks for routes anew, unless it is the one that is under way."""
        if write != self._write:
            self._write = write
            self._queues.clear()

    def queues(self, topic: str) -> tuple[QueueRef, ...]:
        """Returns the queues of a topic that can be written, in a fixed order; waits for a master if there is none."""
        kept = self._queues.get(topic)
        if kept is not None and self._clock.monotonic() < kept.until:
            return kept.queues
        found = self._patiently(lambda: self._asked(topic))
        self._queues[topic] = _Kept(found, self._clock.monotonic() + KEPT_SECONDS)
        return found

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        """Asks again while there is no master, for as long as a message may take."""
        deadline = self._clock.monotonic() + self._options.delivery_timeout_ms / 1000
        tries = 0
        while True:
            try:
                return ask()
            except NoMaster as error:
                if self._clock.monotonic() >= deadline:
                    raise
                note(f"{error}; asking again")
                self.access.back_off(tries)
                tries += 1

    def _asked(self, topic: str) -> tuple[QueueRef, ...]:
        route = self._cluster.route(topic)
        if route is not None:
            return self._writable(topic, route, 1 << 30)
        template = self._cluster.route(AUTO_CREATE_TOPIC)
        if template is not None:
            # A broker registers all its topics at once: one that has just come back brings this one too.
            route = self._cluster.route(topic)
            return self._writable(topic, route or template, 1 << 30 if route else NEW_TOPIC_QUEUES_MAX)
        text = f"no name server knows topic {topic!r}; create it (`tandemq topic create {topic}`)"
        raise NoRoute(text) if self._cluster.groups() else NoMaster(text + " or start a broker: none is up")

    def _writable(self, topic: str, route: TopicRoute, queues_max: int) -> tuple[QueueRef, ...]:
        masters = {group.name: group.master for group in route.groups if group.master}
        self._masters.update(masters)
        found: list[QueueRef] = []
        for data in sorted(route.queues, key=lambda queue: queue.broker_name):
            if data.perm & PERM_WRITE and data.broker_name in masters:
                found += (QueueRef(topic, data.broker_name, n) for n in range(min(data.write_queues, queues_max)))
        if found:
            return tuple(found)
        if any(data.perm & PERM_WRITE for data in route.queues):
            raise NoMaster(f"topic {topic!r} can't be written: no broker group that has it has a master")
        raise NoRoute(f"topic {topic!r} can't be written: it is read-only (its permissions lack WRITE)")

    def master(self, broker: str, *, fresh: bool = False) -> str:
        """Returns the address of a broker group's master; NoRoute if it has none at the moment."""
        if fresh or broker not in self._masters:
            self._masters = self.masters()
            if broker not in self._masters:
                raise NoMaster(f"broker group {broker!r} has no master at the moment")
        return self._masters[broker]

    def awaited_master(self, broker: str) -> str:
        """Returns the address of a broker group's current master; waits for one if there is none."""
        return self._patiently(lambda: self.master(broker, fresh=True))

    def masters(self) -> dict[str, str]:
        """Returns the master of every broker group that has one."""
        return {name: group.master for name, group in sorted(self._cluster.groups().items()) if group.master}

    def awaited_masters(self) -> dict[str, str]:
        """Returns the master of every broker group that has one; waits until there is any."""

        def ask() -> dict[str, str]:
            found = self.masters()
            if not found:
                raise NoMaster("no broker group has a master at the moment")
            return found

        return self._patiently(ask)

    def members(self) -> dict[str, list[str]]:
        """Returns the addresses of every broker group, its master first."""
        groups = sorted(self._cluster.groups().items())
        return {name: [address for _, address in sorted(group.addresses.items())] for name, group in groups}

    def make_topic(self, broker: str, topic: str) -> None:
        """Creates a topic with one queue on a broker group."""
        link = self.access.link(self.awaited_master(broker))
        try:
            fields = {
                "topic": topic, "defaultTopic": AUTO_CREATE_TOPIC, "readQueueNums": "1", "writeQueueNums": "1",
                "perm": str(PERM_READ | PERM_WRITE), "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
                "order": "false",
            }  # fmt: skip
            link.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).raise_for_code()
        finally:
            link.close()


def routes_of_process(options: SinkOptions, write: str) -> WriteRoutes:
    """Returns the routes that all tasks of a worker process share; `write` names the write or micro-batch."""
    routes = _routes_of_process(options)
    routes.begin(write)
    return routes


@lru_cache(maxsize=16)
def _routes_of_process(options: SinkOptions) -> WriteRoutes:
    return WriteRoutes(options)


def forget_routes_of_process() -> None:
    """Drops what the tasks of this process share."""
    _routes_of_process.cache_clear()
