"""The master dies in mid-stream, its slave is promoted: the query ends with every message exactly once."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.peers import servers, wire
from tests.spark.sink_tasks import Place, write

from tandemq.errors import TandemError
from tandemq.spark.options import SinkOptions, parse
from tandemq.spark.runtime.query_start import started
from tandemq.testing.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
BATCHES, ROWS, KILL_AFTER = 60, 50, 20


class ProducerThread(threading.Thread):
    """Writes numbered batches, each until it is acknowledged; two copies before the master dies, one after."""

    def __init__(self, namesrv: str) -> None:
        super().__init__(daemon=True)
        self._namesrv = namesrv
        self.done = 0
        self.copies = "2"
        self.problems: list[str] = []

    def run(self) -> None:
        for batch in range(BATCHES):
            wait_until(lambda batch=batch: self._written(batch), f"batch {batch}", seconds=240)
            self.done = batch + 1

    def _written(self, batch: int) -> bool:
        try:
            self._write(batch)
        except (TandemError, OSError) as error:
            self.problems.append(f"batch {batch}: {error}")
            return False
        return True

    def _write(self, batch: int) -> None:
        given = {"nameserver": self._namesrv, "topic": "t", "delivery": "exactly_once", "copies": self.copies}
        options = parse(SinkOptions, {**given, "retries": "0", "requestTimeoutMs": "3000"})
        rows = pa.RecordBatch.from_pydict({"body": [f"{batch * ROWS + n}".encode() for n in range(ROWS)]})
        write(options, rows, Place(batch, sink="failover"))


def test_a_promoted_slave_carries_stream_and_sink_on(spark: Any, tmp_path: Path) -> None:
    """Acknowledged on both nodes, then on the promoted one: nothing is missing, nothing is there twice."""
    with servers.ours(tmp_path / "pair", {}, slave=True) as pair:
        slave = f"127.0.0.1:{pair.daemons['slave'].port}"
        wire.create_topic(pair.broker, "t", 2)
        servers.await_route(pair, "t")
        rows: list[int] = []
        reader = spark.readStream.format("rocketmq").option("nameserver", pair.namesrv).option("subscribe", "t")
        df = (
            reader.option("startingOffsets", "earliest")
            .option("retries", "60")
            .load()
            .selectExpr("cast(body as string)")
        )
        writer = df.writeStream.foreachBatch(lambda b, _: rows.extend(int(r[0]) for r in b.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="200 milliseconds")
        query = started(writer)
        producer = ProducerThread(pair.namesrv)
        producer.start()
        try:
            wait_for(lambda: producer.done >= KILL_AFTER and bool(rows), query, producer)
            pair.daemons["broker"].kill()
            promote = [sys.executable, "-m", "tandemq", "broker", "promote", slave, "--role", "ASYNC_MASTER", "--force"]
            done = subprocess.run(promote, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr + pair.said()
            producer.copies = "1"
            wait_for(lambda: producer.done == BATCHES, query, producer)
            wait_for(lambda: len(rows) >= BATCHES * ROWS, query, producer)
            assert sorted(rows) == list(range(BATCHES * ROWS))
        finally:
            query.stop()


def wait_for(condition: Any, query: Any, producer: ProducerThread, seconds: float = 240.0) -> None:
    def true_and_alive() -> Any:
        assert query.exception() is None, query.exception()
        return condition()

    told = lambda: f"{producer.done} batches written, last problems {producer.problems[-3:]}"  # noqa: E731
    wait_until(true_and_alive, told, seconds=seconds)
