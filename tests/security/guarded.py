"""A cluster with access control, in this process, and clients of its accounts that send any request.

`operator` is an admin account, `worker` may use the topic `orders` and the group `workers`, `outsider` is denied
everything. The brokers sign with an account of their own.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tandemq.broker.broker import Broker
from tandemq.clock import SystemClock
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.codec.send_header import SendHeader, send_ext
from tandemq.model.message import encode_properties
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.testing.local_cluster import LocalCluster

ACCOUNTS = """
accounts:
- {accessKey: operator, secretKey: secret-of-operator, admin: true}
- {accessKey: the-broker, secretKey: secret-of-broker, admin: true}
- accessKey: worker
  secretKey: secret-of-worker
  topicPerms: [orders=PUB|SUB]
  groupPerms: [workers=SUB]
- {accessKey: outsider, secretKey: secret-of-outsider, defaultTopicPerm: DENY, defaultGroupPerm: DENY}
- {accessKey: generous, secretKey: secret-of-generous, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
"""
SECRETS = {name: f"secret-of-{name}" for name in ("operator", "worker", "outsider", "generous")}
TIMEOUT = 10.0


class Guarded:
    """A running cluster; `ask` sends one request as an account."""

    def __init__(self, cluster: LocalCluster, broker: Broker, accounts: Path) -> None:
        self.cluster = cluster
        self.broker = broker
        self.accounts = accounts
        self.clients: dict[str, RemotingClient] = {}

    async def ask(
        self, account: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, address: str = ""
    ) -> Command:
        """The answer to one request, signed by an account of the file, or by nobody if `account` is empty."""
        return await self.client(account).invoke(
            address or self.broker.address, Command(code, dict(ext or {}), body), TIMEOUT
        )

    def client(self, account: str) -> RemotingClient:
        if account not in self.clients:
            config = RemotingConfig()
            if account:
                config = RemotingConfig(access_key=account, secret_key=SECRETS[account])
            self.clients[account] = RemotingClient(config)
        return self.clients[account]

    async def send(self, account: str, topic: str, body: bytes = b"hello", **properties: str) -> Command:
        command = send(topic, body, **properties)
        return await self.ask(account, command.code, command.ext, body)


def send(topic: str, body: bytes, **properties: str) -> Command:
    """One message, ready to be sent."""
    header = SendHeader(
        producerGroup="producers", topic=topic, defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0,
        sysFlag=0, bornTimestamp=SystemClock().wall_ms(), flag=0, properties=encode_properties(properties).decode(),
    )  # fmt: skip
    return Command(RequestCode.SEND_MESSAGE_V2, send_ext(header, short=True), body)


@asynccontextmanager
async def guarded(directory: Path, **properties: str) -> AsyncIterator[Guarded]:
    accounts = directory / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    common = {
        "aclEnable": "true",
        "aclFile": str(accounts),
        "accessKey": "the-broker",
        "secretKey": "secret-of-broker",
        **properties,
    }
    async with LocalCluster(directory, properties=common) as cluster:
        running = Guarded(cluster, await cluster.add_broker(), accounts)
        try:
            yield running
        finally:
            for client in running.clients.values():
                await client.close()


def run(directory: Path, story: Callable[[Guarded], Awaitable[None]], **properties: str) -> None:
    """Tells a story on a cluster of its own."""

    async def main() -> None:
        async with guarded(directory, **properties) as running:
            await story(running)

    asyncio.run(main())
