"""What the stories of the Python client share: servers, topics, listeners that remember, waits with deadlines.

The same stories run against our servers and against real RocketMQ brokers; a difference between the targets is ours.
`TANDEMQ_TEST_CLUSTER=namesrv,master` runs them against servers that run already.
"""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.peers import servers
from tests.peers.programs import JAVA_VERSIONS
from tests.peers.tools import Missing

from tandemq.client import Action, Admin, ClientConfig, ReceivedMessage
from tandemq.clock import SystemClock
from tandemq.errors import NoRoute
from tandemq.model.topic import TopicConfig
from tandemq.testing.waiting import until

SETTINGS = {
    "enablePropertyFilter": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "autoCreateTopicEnable": "true",
}
CLOCK = SystemClock()
TARGETS = [
    "ours",
    *(pytest.param(f"rocketmq-{version}", marks=[pytest.mark.peer, pytest.mark.slow]) for version in JAVA_VERSIONS),
]


@dataclass(frozen=True)
class Cluster:
    """A name server and a master that answer."""

    namesrv: str
    master: str
    name: str

    def config(self, **options: object) -> ClientConfig:
        return ClientConfig(namesrv=self.namesrv, **{"rebalance_interval_ms": 2000, **options})  # type: ignore[arg-type]


@contextlib.contextmanager
def running(target: str, where: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[Cluster]:
    """A target's servers; skips the test where they can't be had."""
    given = os.environ.get("TANDEMQ_TEST_CLUSTER")
    if given:
        namesrv, master = given.split(",")
        yield Cluster(namesrv, master, target)
        return
    try:
        started = servers.start(target, where, settings)
        with started as found:
            yield Cluster(found.namesrv, found.broker, target)
    except Missing as reason:
        pytest.skip(f"real RocketMQ can't be had: {reason}")


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


async def make_topic(cluster: Cluster, queues: int = 4) -> str:
    """A new topic that name server and broker know."""
    topic = unique("topic")
    async with Admin(namesrv=cluster.namesrv) as admin:
        await admin.create_topic(TopicConfig(name=topic, read_queues=queues, write_queues=queues))

        await until(lambda: admin.queues(topic), f"a route of {topic}", ignoring=(NoRoute,))
    return topic


async def work(seconds: float) -> None:
    """Takes time, as the work of a listener does."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(seconds, lambda: done.done() or done.set_result(None))
    await done


class Inbox:
    """A listener that remembers what it got."""

    def __init__(self, answer: Callable[[ReceivedMessage], Action | None] = lambda _: None) -> None:
        self.messages: list[ReceivedMessage] = []
        self._answer = answer

    async def __call__(self, messages: object) -> Action | None:
        assert isinstance(messages, list)
        self.messages += messages
        answers = [self._answer(message) for message in messages]
        return Action.LATER if Action.LATER in answers else None

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]
