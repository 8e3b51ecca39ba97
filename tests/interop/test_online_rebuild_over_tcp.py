"""An operator rebuilds the views of a running broker, over TCP and with the real binary, while clients go on."""

import asyncio
import json
import os
import sys
from pathlib import Path

from tandemq.broker.broker import Broker
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.formats.record import walk
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.store.discover import discover_config
from tandemq.store.disk import FileDisk
from tandemq.store.verify import verify
from tandemq.testing.local_cluster import LocalCluster

SEND_V2, PULL = 310, 11


async def send(client: RemotingClient, broker: Broker, body: bytes) -> None:
    header = SendHeader(
        producerGroup="pg", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0, sysFlag=0,
        bornTimestamp=1, flag=0, properties="KEYS\x01k\x02",
    )  # fmt: skip
    reply = await client.invoke(broker.address, Command(SEND_V2, send_ext(header, short=True), body), 10)
    assert reply.code == 0, reply.remark


async def pulled(client: RemotingClient, broker: Broker, offset: int) -> int:
    ext = {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
    }  # fmt: skip
    reply = await client.invoke(broker.address, Command(PULL, ext), 10)
    return sum(1 for _ in walk(bytes(reply.body), 0, len(reply.body))) if reply.code == 0 else 0


async def tandemq(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tandemq", *arguments, stdout=-1, stderr=-1, env={**os.environ, "COLUMNS": "200"}
    )
    out, error = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), error.decode()


def test_a_broker_rebuilds_its_views_while_it_serves(tmp_path: Path) -> None:
    """The command waits for the result; sends and pulls go on; the store is whole afterwards."""

    async def main() -> Path:
        async with LocalCluster(tmp_path) as cluster:
            broker = await cluster.add_broker()
            client = RemotingClient(RemotingConfig())
            count = 0
            try:
                for _ in range(1500):
                    await send(client, broker, bytes(1000))
                    count += 1
                working = asyncio.create_task(tandemq("store", "rebuild", "--online", broker.address, "--json"))
                while not working.done():
                    await send(client, broker, b"meanwhile")
                    count += 1
                    assert await pulled(client, broker, 0) > 0
                code, out, error = await working
                assert code == 0, error
                done = json.loads(out)
                assert (done["phase"], done["running"], done["error"]) == ("done", False, "")
                assert done["queuesCorrected"] == 0
                assert done["queueEntries"] >= 1500
                offset = 0
                while found := await pulled(client, broker, offset):
                    offset += found
                assert offset == count
                code, out, error = await tandemq("store", "rebuild", "--online", broker.address)
                assert (code, out) == (0, "")
                assert "built from the log" in error
            finally:
                await client.close()
            return broker.root

    root = asyncio.run(main())
    report = verify(FileDisk(), root, discover_config(FileDisk(), root))
    assert report.ok, report.problems


def test_nobody_there(tmp_path: Path) -> None:
    """One sentence, exit 1."""
    code, _, error = asyncio.run(tandemq("store", "rebuild", "--online", "127.0.0.1:1"))
    assert code == 1
    assert "127.0.0.1:1" in error
    assert "Traceback" not in error
