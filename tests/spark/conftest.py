"""One Spark session for all Spark tests: a JVM takes seconds to start."""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.golden import unpack

from tandemq.model.topic import TopicConfig


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tandemq.spark.session import session_builder

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    work = tmp_path_factory.mktemp("spark")
    builder = session_builder("tandemq-tests", master="local[2,4]", work_directory=work)
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def golden_533(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores that RocketMQ 5.3.3 wrote: master-killed, slave-clean, master-clean."""
    return unpack("5.3.3", tmp_path_factory.mktemp("golden533"))


class ThreadedCluster:
    """A LocalCluster in a thread of its own: tests and Spark call it from outside its loop."""

    def __init__(self, directory: Path) -> None:
        from tandemq.testing.local_cluster import LocalCluster

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._cluster = LocalCluster(directory)
        self.run(self._cluster.__aenter__())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @property
    def nameserver(self) -> str:
        return self._cluster.namesrv_address

    def add_broker(self, *arguments: Any, **named: Any) -> Any:
        return self.run(self._cluster.add_broker(*arguments, **named))

    def restart(self, broker: Any) -> Any:
        return self.run(self._cluster.restart(broker))

    def create_topic(self, broker: Any, topic: str, queues: int) -> None:
        async def create() -> None:
            broker.topics.put(TopicConfig(name=topic, read_queues=queues, write_queues=queues))
            broker.registration.announce()
            await broker.registration.wait_registered(10)

        self.run(create())

    def close(self) -> None:
        self.run(self._cluster.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreadedCluster]:
    """A name server; brokers are added by the test."""
    running = ThreadedCluster(tmp_path / "cluster")
    yield running
    running.close()
