"""Backups of brokers that run, in processes of their own, and brokers that start from them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandemq.testing.pair import BrokerProcess, LoadResult, RealPair
from tandemq.testing.waiting import until

SMALL = {"mappedFileSizeCommitLog": str(1 << 17)}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def tandemq(*arguments: str | Path, code: int = 0, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tandemq", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout if code == 0 else done.stderr)


async def later(*arguments: str | Path, **environment: str) -> Any:
    return await asyncio.to_thread(tandemq, *arguments, **environment)


def check(result: LoadResult, count: int, broker: BrokerProcess) -> None:
    """Of a load's acknowledged messages, the first `count` are all in the broker's log, where they were told to be."""
    queues = RealPair.messages(broker)
    for told in result.acknowledged[:count]:
        assert queues[told.queue_id][told.queue_offset].startswith(told.body), f"not in the backup: {told}"


def beside(pair: RealPair, name: str) -> BrokerProcess:
    """A broker over a store of its own."""
    found = BrokerProcess(pair.master.store.parent.parent / name, SMALL)
    pair.brokers.append(found)
    return found


def test_a_backup_of_a_running_pair_starts_alone_or_follows_the_group_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with RealPair(tmp_path, properties=SMALL) as pair:
            pair.master.start()
            pair.slave.start()
            await pair.in_sync()
            load = pair.load(senders=4)
            counts = {}
            for broker in (pair.master, pair.slave):
                copied = 0
                for _ in range(3):
                    count = len(load.result.acknowledged)
                    await load.reached(count + 400)
                    counts[broker] = len(load.result.acknowledged)
                    target = tmp_path / f"backup-{broker.port}"
                    taken = await later("store", "backup", broker.store, target)
                    assert taken["filesKept"] >= copied - 1, "full files are copied once"
                    copied = taken["filesKept"] + taken["filesCopied"]
            for name, source in (("alone", pair.master), ("again", pair.slave)):
                made = beside(pair, name)
                target = tmp_path / f"backup-{source.port}"
                restored = await later("store", "restore", target, made.store)
                assert (await later("store", "verify", made.store))["ok"]
                check(load.result, counts[source], made)
                record = json.loads((made.store / "replica.json").read_text())["content"]
                assert (record["replica"], record["members"], record["in_sync"]) == ("", [], [])
                assert restored["lastEpoch"] == record["history"][-1][0] >= 1
            alone, again = pair.brokers[2:]

            again.properties |= {
                "brokerName": "broker-a", "brokerId": "2", "brokerRole": "SLAVE",
                "namesrvAddr": pair.master.properties["namesrvAddr"],
            }  # fmt: skip
            again.start()
            await pair.in_sync(quiet=False)
            result = await load.stop()
            await pair.in_sync()
            status = await pair.status(pair.master)
            addresses = sorted(replica["replica"].partition("#")[0] for replica in status["replicas"])
            assert addresses == sorted((pair.slave.address, again.address))

            alone.properties |= {"brokerName": "broker-b", "brokerId": "0", "brokerRole": "ASYNC_MASTER"}
            alone.start()
            await until(lambda: is_open(pair, alone))
            status = await pair.status(alone)
            assert status["epoch"] > 1
            assert status["replicas"] == []
            await pair.stopped(*pair.brokers)
            assert again.log_bytes().rstrip(b"\0") == pair.master.log_bytes().rstrip(b"\0")
            check(result, len(result.acknowledged), again)
            for broker in pair.brokers:
                assert (await later("store", "verify", broker.store))["ok"]

    asyncio.run(run())


async def is_open(pair: RealPair, broker: BrokerProcess) -> bool:
    return (await pair.status(broker)).get("phase") == "open"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty bucket in a local server that speaks S3."""
    server_module = pytest.importorskip("moto.server", reason="moto, which serves S3 to tests, is not installed")
    pytest.importorskip("pyarrow", reason="s3:// needs pyarrow")
    from pyarrow import fs

    for name, value in (("ACCESS_KEY_ID", "me"), ("SECRET_ACCESS_KEY", "secret"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    query = f"endpoint_override={host}:{port}&scheme=http"
    files, _ = fs.FileSystem.from_uri(f"s3://backups?{query}&allow_bucket_creation=true")
    files.create_dir("backups")
    yield f"s3://backups/broker-a?{query}"
    server.stop()


def test_a_backup_of_a_running_broker_in_s3(tmp_path: Path, s3: str) -> None:
    async def run() -> None:
        async with RealPair(tmp_path, slaves=0, properties=SMALL) as pair:
            pair.master.start(brokerRole="ASYNC_MASTER")
            load = pair.load(senders=4)
            await load.reached(1000)
            first = await later("store", "backup", pair.master.store, s3)
            assert first["filesCopied"] > 1
            await load.reached(2000)
            count = len(load.result.acknowledged)
            again = await later("store", "backup", pair.master.store, s3)
            assert again["filesKept"] >= first["filesCopied"] - 1
            assert again["position"] > first["position"]
            result = await load.stop()
            made = beside(pair, "made")
            assert (await later("store", "verify", s3))["ok"]
            await later("store", "restore", s3, made.store)
            assert (await later("store", "verify", made.store))["ok"]
            check(result, count, made)

    asyncio.run(run())
    refused = tandemq("store", "backup", tmp_path / "broker-0" / "store", s3.replace("backups", "nobodys"), code=1)
    assert "s3://nobodys/broker-a" in refused["error"]["message"]
