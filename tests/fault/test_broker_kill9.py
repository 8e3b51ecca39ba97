"""A broker process killed under load: what it acknowledged is there when it comes back, in order and once.

A killed process leaves its pages to the kernel, so this holds for ASYNC_FLUSH too; machine crashes are in the store's.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tandemq.broker.addresses import free_port
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.errors import ConnectFailed, RemotingError
from tandemq.formats.record import parse_record, walk
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.testing.waiting import until

HOST = "127.0.0.1"
ROUNDS = 3
SENDERS = 8


class Daemon:
    """`tandemq broker` in a process of its own."""

    def __init__(self, directory: Path, flush: str) -> None:
        self.port = free_port(HOST)
        self.address = f"{HOST}:{self.port}"
        self.conf = directory / "broker.conf"
        self.log = directory / "log"
        self.conf.write_text(
            f"brokerName=broker-a\nbrokerIP1={HOST}\nbindAddress={HOST}\nlistenPort={self.port}\n"
            f"storePathRootDir={directory / 'store'}\nflushDiskType={flush}\nmappedFileSizeCommitLog=1048576\n"
            "maxHashSlotNum=1000\nmaxIndexNum=4000\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, client: RemotingClient) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220  # a fork and exec, then the waiting is not here
                [sys.executable, "-m", "tandemq", "broker", "-c", str(self.conf)], stdout=log, stderr=log
            )
        process = self.process

        async def answers() -> Command:
            assert process.poll() is None, self.log.read_text()
            return await client.invoke(self.address, Command(30, {"topic": "T", "queueId": "0"}), 5)

        await until(answers, "the broker to come up", seconds=60, ignoring=(ConnectFailed,))

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)


async def send_until_lost(client: RemotingClient, address: str, name: str, acked: dict[str, int]) -> None:
    """Sends one after the other; `acked` gets body -> queue offset of those that were answered."""
    number = 0
    while True:
        body = f"{name}-{number}"
        header = SendHeader(
            producerGroup="pg", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0, sysFlag=0,
            bornTimestamp=1, flag=0,
        )  # fmt: skip
        try:
            reply = await client.invoke(address, Command(310, send_ext(header, short=True), body.encode() * 20), 10)
        except RemotingError:
            return
        assert reply.code == 0, reply.remark
        acked[body] = int(reply.ext["queueOffset"])
        number += 1


async def read_all(client: RemotingClient, address: str) -> list[str]:
    found: list[str] = []
    while True:
        ext = {
            "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": str(len(found)), "maxMsgNums": "1000",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
        }  # fmt: skip
        reply = await client.invoke(address, Command(11, ext), 10)
        if reply.code != 0:
            return found
        data = bytes(reply.body)
        for start, size, _ in walk(data, 0, len(data)):
            message = parse_record(data, start, start + size, crc=True)
            assert message.queue_offset == len(found)
            found.append(message.body[: len(message.body) // 20].decode())


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, flush: str) -> None:
    async def story() -> None:
        daemon = Daemon(tmp_path, flush)
        acked: dict[str, int] = {}
        async with RemotingClient(RemotingConfig()) as client:
            for round_number in range(ROUNDS):
                await daemon.start(client)
                wanted = len(acked) + 200
                senders = [
                    asyncio.create_task(send_until_lost(client, daemon.address, f"{round_number}.{n}", acked))
                    for n in range(SENDERS)
                ]
                await until(lambda count=wanted: len(acked) >= count, "200 more acknowledgements", seconds=60)
                daemon.kill()
                await asyncio.gather(*senders)
            await daemon.start(client)
            try:
                found = await read_all(client, daemon.address)
            finally:
                assert daemon.stop() == 0, daemon.log.read_text()
        missing = [body for body, offset in acked.items() if found[offset : offset + 1] != [body]]
        assert not missing, (
            f"{len(missing)} of {len(acked)} acknowledged messages are not where they were: {missing[:5]}"
        )
        assert len(set(found)) == len(found)

    asyncio.run(story())
