"""The Python client with TLS and signed requests, against our servers started from their property files."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.peers.servers import free_ports

from tandemq.client import Admin, ClientConfig, Message, Producer
from tandemq.client.bulk import QueueReader
from tandemq.clock import SystemClock
from tandemq.codec.acl import Credentials
from tandemq.errors import RemotingError, ReplyError, SendFailed, TandemError
from tandemq.model.topic import TopicConfig
from tandemq.testing.waiting import until

PROGRAM = [sys.executable, "-c", "from tandemq.cli.main import main; main()"]
CLOCK = SystemClock()
ACCOUNTS = """
accounts:
- accessKey: operator-key
  secretKey: operator-secret
  admin: true
- accessKey: writer-key
  secretKey: writer-secret
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - orders=PUB
"""


@dataclass(frozen=True)
class Servers:
    namesrv: str
    broker: str
    certificate: Path

    def config(self, access_key: str, secret_key: str) -> ClientConfig:
        return ClientConfig(
            namesrv=self.namesrv,
            use_tls=True,
            tls_ca_file=str(self.certificate),
            access_key=access_key,
            secret_key=secret_key,
        )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    where = tmp_path_factory.mktemp("secure")
    certificate, key, accounts = where / "cert.pem", where / "key.pem", where / "plain_acl.yml"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True)
    accounts.write_text(ACCOUNTS)
    ports = (*free_ports(), *free_ports(around=True))
    secure = {
        "tlsMode": "enforcing",
        "tlsServerCertPath": certificate,
        "tlsServerKeyPath": key,
        "aclEnable": "true",
        "aclFile": accounts,
        "bindAddress": "127.0.0.1",
    }
    broker = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": ports[1],
        "namesrvAddr": f"127.0.0.1:{ports[0]}",
        "storePathRootDir": where / "store",
        "useTLS": "true",
        "tlsClientTrustCertPath": certificate,
        "accessKey": "operator-key",
        "secretKey": "operator-secret",
    }
    processes = []
    try:
        for noun, values, port in (("namesrv", {"listenPort": ports[0]}, ports[0]), ("broker", broker, ports[1])):
            conf = where / f"{noun}.conf"
            conf.write_text("".join(f"{name}={value}\n" for name, value in {**secure, **values}.items()))
            with open(where / f"{noun}.log", "wb") as out:
                processes.append(subprocess.Popen([*PROGRAM, noun, "-c", str(conf)], stdout=out, stderr=out))
            _wait_for(port, processes[-1], where / f"{noun}.log")
        found = Servers(f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}", certificate)
        asyncio.run(_prepared(found))
        yield found
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(20)


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = CLOCK.monotonic() + 30
    while CLOCK.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.3).close()
            return
        except OSError:
            continue
    pytest.fail(f"no answer on {port}:\n{log.read_text()[-2000:]}")


async def _prepared(servers: Servers) -> None:
    """The topic `orders` with a route, made by the operator."""
    async with Admin(config=servers.config("operator-key", "operator-secret")) as admin:

        async def made() -> object:
            await admin.create_topic(TopicConfig(name="orders", read_queues=1, write_queues=1))
            return await admin.queues("orders")

        await until(made, "a route to the topic", ignoring=(TandemError,))


def test_signed_requests_over_tls_do_their_work(servers: Servers) -> None:
    async def story() -> None:
        config = servers.config("operator-key", "operator-secret")
        async with Producer("p", config=config) as producer, Admin(config=config) as admin:
            assert (await producer.send(Message(topic="orders", body=b"sent"))).ok
            assert (await (await producer.submit(Message(topic="orders", body=b"submitted")))).ok
            assert len(await producer.send_batch([Message(topic="orders", body=b"a")] * 2)) == 2
            (queue,) = await admin.queues("orders")
            assert (await admin.message_at(queue, 0)).body in (b"sent", b"submitted", b"a")

    asyncio.run(story())


def test_bulk_reading_is_signed_and_encrypted_too(servers: Servers) -> None:
    tls = ssl.create_default_context(cafile=str(servers.certificate))
    credentials = Credentials("operator-key", "operator-secret")
    with QueueReader(servers.broker, credentials=credentials, tls=tls) as reader:
        assert reader.range("orders", 0)[0] == 0


def test_a_wrong_secret_is_refused(servers: Servers) -> None:
    async def story() -> None:
        async with Admin(config=servers.config("operator-key", "guessed")) as admin:
            with pytest.raises(ReplyError, match=r"(?i)signature|check"):
                await admin.topics()

    asyncio.run(story())


def test_an_account_does_only_what_it_may(servers: Servers) -> None:
    async def story() -> None:
        config = servers.config("writer-key", "writer-secret")
        async with Producer("p", config=config) as producer:
            assert (await producer.send(Message(topic="orders", body=b"x"))).ok
        async with Admin(config=config) as admin:
            with pytest.raises(ReplyError, match=r"(?i)code 16"):
                await admin.create_topic(TopicConfig(name="mine"), brokers=["broker-a"])

    asyncio.run(story())


def test_plain_text_gets_no_answer(servers: Servers) -> None:
    async def story() -> None:
        async with Producer("p", namesrv=servers.namesrv) as producer:
            with pytest.raises((RemotingError, SendFailed)):
                await producer.send(Message(topic="orders", body=b"x"))

    asyncio.run(story())


def test_a_server_that_nobody_vouches_for_is_not_talked_to(servers: Servers) -> None:
    async def story() -> None:
        async with Producer("p", config=ClientConfig(namesrv=servers.namesrv, use_tls=True)) as producer:
            with pytest.raises(RemotingError, match=r"(?i)certificate"):
                await producer.send(Message(topic="orders", body=b"x"))

    asyncio.run(story())
