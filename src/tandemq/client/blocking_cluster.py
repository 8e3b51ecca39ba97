"""A cluster as seen by threads and processes without an event loop: routes, broker groups, committed offsets.

Name servers are asked over one blocking connection, one after the other until one answers, several times if need be.
Masters are looked up again after every failure, because a promotion may have moved them.
"""

import logging
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tandemq.client.blocking_link import BlockingLink
from tandemq.client.config import parse_namesrv
from tandemq.codec import bodies, fastjson
from tandemq.codec.acl import Credentials
from tandemq.codec.codes import OperatorCode, RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.properties import properties_of
from tandemq.errors import ConnectFailed, NoRoute, RemotingError, TandemError
from tandemq.model.route import BrokerGroup, TopicRoute
from tandemq.model.topic import QueueRef

log = logging.getLogger("tandemq.client")

PAUSE_SECONDS_MAX = 10.0


def _block(seconds: float) -> None:
    threading.Event().wait(seconds)


def _warn(text: str) -> None:
    log.warning("%s", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """How to reach a cluster, and how patiently."""

    namesrv: str
    """Name servers, `host:port` separated by `;`."""
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None
    timeout_s: float = 10.0
    """Longest wait for one answer."""
    retries: int = 5
    """Tries after the first."""
    retry_interval_s: float = 0.5
    """Pause before the first retry; it doubles with each further one, up to `PAUSE_SECONDS_MAX`."""
    report: Callable[[str], None] = _warn
    """Told in one line of each problem that is survived by trying again."""
    pause: Callable[[float], None] = _block
    """Blocks the thread for so many seconds."""

    def back_off(self, tries: int) -> None:
        """Waits before the next try; longer each time."""
        self.pause(min(PAUSE_SECONDS_MAX, self.retry_interval_s * 2 ** min(tries, 20)))

    def link(self, address: str) -> BlockingLink:
        """Opens a connection to a broker or name server."""
        return BlockingLink(address, timeout=self.timeout_s, credentials=self.credentials, tls=self.tls)


class _NobodyAnswers(NoRoute):
    """No name server gave an answer."""

    def __init__(self, text: str, may_be_busy: bool) -> None:
        super().__init__(text)
        self.may_be_busy = may_be_busy


class BlockingCluster:
    """Routes, broker groups and committed offsets of one cluster. Not for threads: one owner each."""

    def __init__(self, access: ClusterAccess) -> None:
        self.access = access
        self._addresses = list(parse_namesrv(access.namesrv))
        self._link: BlockingLink | None = None
        self._answered = False

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    # what name servers know

    def route(self, topic: str) -> TopicRoute | None:
        """Returns the route of a topic, or None if no name server knows it."""
        body = self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        return bodies.topic_route_of(fastjson.loads(body)) if body else None

    def topics(self) -> list[str]:
        body = self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        return sorted(fastjson.loads(body).get("topicList", [])) if body else []

    def groups(self) -> dict[str, BrokerGroup]:
        """Returns every broker group by its name."""
        body = self._ask(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        return bodies.cluster_info_of(fastjson.loads(body))[0] if body else {}

    # what brokers know

    def log_end(self, address: str) -> int:
        """Returns the end of a broker's commit log, or -1 if the broker gives no usable answer."""
        try:
            with self._broker(address) as link:
                reply = link.call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
                table = fastjson.loads(bytes(reply.raise_for_code().body)).get("table", {})
                return int(table.get("commitLogMaxOffset", 0))
        except (TandemError, OSError, ValueError):
            return -1

    def observers(self, address: str) -> list[str]:
        """Returns the observers that a broker serves; none for one that gives no usable answer, as RocketMQ's."""
        try:
            with self._broker(address) as link:
                reply = link.call(OperatorCode.HA_DETAIL, {})
                replicas = fastjson.loads(bytes(reply.raise_for_code().body)).get("replicas", ())
                return [str(one["address"]) for one in replicas if one["state"] == "observing"]
        except (TandemError, OSError, ValueError, KeyError, TypeError, AttributeError):
            return []

    def broker_name(self, address: str) -> str:
        """Returns the name of the group that a broker says it is of; RemotingError, ReplyError."""
        with self._broker(address) as link:
            reply = link.call(RequestCode.GET_BROKER_CONFIG, {}).raise_for_code()
        return properties_of(reply.body).get("brokerName", "")

    def committed_offsets(self, group: BrokerGroup) -> dict[str, dict[int, int]]:
        """Returns all committed offsets of a broker group: `topic@consumerGroup` -> queue id -> offset."""
        with self._broker(_asked_first(group)) as link:
            reply = link.call(RequestCode.GET_ALL_CONSUMER_OFFSET, {}).raise_for_code()
        return bodies.offset_table_of(fastjson.loads(bytes(reply.body)))[0]

    def commit(self, group: BrokerGroup, consumer_group: str, offsets: Mapping[QueueRef, int]) -> None:
        """Commits offsets of queues of one broker group; returns when the broker has taken them all."""
        with self._broker(_asked_first(group)) as link:
            asked = [
                link.send(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {
                        "consumerGroup": consumer_group,
                        "topic": queue.topic,
                        "queueId": str(queue.queue_id),
                        "commitOffset": str(offset),
                    },
                )
                for queue, offset in offsets.items()
            ]
            for opaque in asked:
                link.wait(opaque).raise_for_code()

    @contextmanager
    def _broker(self, address: str) -> Iterator[BlockingLink]:
        link = self.access.link(address)
        try:
            yield link
        finally:
            link.close()

    # asking name servers

    def _ask(self, code: int, fields: dict[str, str]) -> bytes | None:
        """Returns the body of a name server's answer, or None if it does not know the topic."""
        tries = 0
        while True:
            try:
                return self._ask_each(code, fields)
            except _NobodyAnswers as error:
                # A connection refused before any answer means a wrong address: more tries only make the user wait.
                if tries >= self.access.retries or not (self._answered or error.may_be_busy):
                    raise
                self.access.report(f"{error}; asking again")
                self.access.back_off(tries)
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
            f"nameserver={self.access.namesrv!r}: none answers: {said}",
            any(not isinstance(problem, ConnectFailed) for problem in problems),
        )

    def _call(self, address: str, code: int, fields: dict[str, str]) -> Command:
        """Asks over the open connection if it still works, else over a new one."""
        if self._link is not None and self._link.address == address:
            try:
                return self._link.call(code, fields)
            except RemotingError:
                self._link.close()  # it may have been idle for long: its failure says nothing about the server
        self._link = self.access.link(address)
        return self._link.call(code, fields)


def _asked_first(group: BrokerGroup) -> str:
    """Returns the master's address, or any member's if the group has no master."""
    return group.master or next(iter(group.addresses.values()))
