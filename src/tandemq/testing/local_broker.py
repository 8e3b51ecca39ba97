"""A broker for the tests of programs that use TandemQ: in this process, on free ports, gone at the end.

    with LocalBroker() as broker:
        broker.create_topic("orders")
        with sync.Producer("shop", namesrv=broker.namesrv) as producer:
            producer.send(Message(topic="orders", body=b"paid"))
        assert [message.body for message in broker.messages("orders")] == [b"paid"]

It is the real name server and the real broker, in an event loop in a thread of its own, so that it serves tests with
and without a loop, and programs that a test starts. `tandemq.testing.pytest_plugin` offers it as fixtures.
"""

import asyncio
import tempfile
import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from tandemq.client import ClientConfig, ConsumeFrom, NoRoute, ReceivedMessage, TopicConfig, sync
from tandemq.testing.local_cluster import LocalCluster
from tandemq.testing.waiting import wait_until

START_S = 30.0
"""How long start and stop may take; both take well under a second on an idle machine."""
POLL_MS = 1000


class LocalBroker:
    """A name server and one master. Topics come into being with the first message, unless `properties` say otherwise.

    with LocalBroker(properties={"messageDelayLevel": "1s 1s 1s 1s"}) as broker:
        print(broker.namesrv)

    `properties` are broker options under RocketMQ's names, as in broker.conf.
    """

    def __init__(self, *, properties: Mapping[str, str] | None = None) -> None:
        self._properties = dict(properties or {})
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._namesrv = ""

    def start(self) -> None:
        """Returns when it takes messages; `with` does it too. Raises what kept it from starting."""
        if self._thread is not None:
            raise RuntimeError("this LocalBroker was started already")
        ready: Future[str] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="tandemq-local-broker", daemon=True
        )
        self._thread.start()
        self._namesrv = ready.result(START_S)

    async def _serve(self, ready: "Future[str]") -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="tandemq-") as directory:
                async with LocalCluster(Path(directory)) as cluster:
                    await cluster.add_broker(properties=self._properties)
                    self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
                    ready.set_result(cluster.namesrv_address)
                    await self._stop.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def close(self) -> None:
        """Stops it and removes its files."""
        if self._thread is not None and self._loop is not None and self._stop is not None:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(START_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def namesrv(self) -> str:
        """The address for `namesrv=`, and for `namesrvAddr` of other clients."""
        return self._namesrv

    def config(self, **options: object) -> ClientConfig:
        """Returns a ClientConfig for this broker that fits tests: groups start at the first message.

        consumer = PushConsumer("printers", listener, config=broker.config(consume_batch_size=8))
        """
        fitting = {"namesrv": self.namesrv, "consume_from": ConsumeFrom.FIRST_OFFSET, "rebalance_interval_ms": 1000}
        return ClientConfig(**{**fitting, **options})  # type: ignore[arg-type]

    def create_topic(self, name: str | None = None, *, queues: int = 4) -> str:
        """Creates a topic and waits until clients can find it; returns its name, which is made up if none is given.

        topic = broker.create_topic(queues=1)
        """
        topic = name or f"topic-{uuid.uuid4().hex[:12]}"
        with sync.Admin(namesrv=self.namesrv) as admin:
            admin.create_topic(TopicConfig(name=topic, read_queues=queues, write_queues=queues))
            wait_until(lambda: admin.queues(topic), f"a route of topic {topic!r}", seconds=START_S, ignoring=(NoRoute,))
        return topic

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Returns everything that a topic holds at this moment, queue by queue; no consumer group notices.

        assert [message.body for message in broker.messages("orders")] == [b"paid"]
        """
        found: list[ReceivedMessage] = []
        with sync.PullConsumer(_reader(), namesrv=self.namesrv, auto_commit=False) as consumer:
            try:
                queues = consumer.queues(topic)
            except NoRoute:
                return []
            consumer.assign(queues)
            ends = {}
            for queue in queues:
                first, ends[queue] = consumer.range(queue)
                consumer.seek(queue, first)
            while any(consumer.position(queue) < end for queue, end in ends.items()):
                found += [m for m in consumer.poll(POLL_MS) if m.queue_offset < ends[m.queue]]
        return sorted(found, key=lambda message: (message.queue, message.queue_offset))


def _reader() -> str:
    return f"tandemq-testing-{uuid.uuid4().hex[:12]}"
