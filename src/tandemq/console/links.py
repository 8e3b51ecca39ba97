"""The console's ways into the cluster: one for everybody where access is not controlled, else one for each account."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator

from tandemq.client.admin import Admin
from tandemq.client.config import ClientConfig
from tandemq.client.producer import Producer
from tandemq.client.session import Session
from tandemq.clock import Clock
from tandemq.console.watch import Watch

PRODUCER_GROUP = "TANDEMQ_CONSOLE"


class Link:
    """A client session with an account's credentials, or with none."""

    def __init__(self, config: ClientConfig, clock: Clock) -> None:
        self.session = Session(config)
        self.admin = Admin(session=self.session)
        self.watch = Watch(self.admin, clock)
        self.session.on_connection_lost.append(self.watch.lost)
        self._producer: Producer | None = None

    async def start(self) -> None:
        await self.session.start()
        self.watch.start()

    async def producer(self) -> Producer:
        """Returns the producer of acts; it joins the cluster when it is first needed."""
        if self._producer is None:
            self._producer = Producer(PRODUCER_GROUP, session=self.session)
            await self._producer.start()
        return self._producer

    async def close(self) -> None:
        await self.watch.stop()
        if self._producer is not None:
            await self._producer.close()
        await self.session.close()


class Links:
    """The links in use. The one without credentials also finds out whether the cluster wants any."""

    def __init__(self, config: ClientConfig, clock: Clock, keyed: ClientConfig | None = None) -> None:
        self._keyed = keyed
        """Proves the brokers' shared key; for orders where there are no accounts."""
        # Whatever account the shell has: a person at a browser is not that account.
        self._config = dataclasses.replace(config, access_key="", secret_key="")
        self._clock = clock
        self.open = Link(self._config, clock)
        self._of: dict[tuple[str, str], Link] = {}

    async def start(self) -> None:
        await self.open.start()

    async def close(self) -> None:
        for link in (*self._of.values(), self.open):
            await link.close()
        self._of.clear()

    @property
    def is_controlled(self) -> bool:
        """Whether the cluster answers nobody without an account."""
        return self.open.watch.snapshot.refused

    async def of(self, account: str, secret: str) -> Link:
        """Returns the link of an account that has signed in; by its secret too, so that a wrong one opens nothing."""
        if not account:
            return self.open
        key = (account, secret)
        if key not in self._of:
            link = Link(dataclasses.replace(self._config, access_key=account, secret_key=secret), self._clock)
            self._of[key] = link
            await link.start()
        return self._of[key]

    @contextlib.asynccontextmanager
    async def for_orders(self, link: Link) -> AsyncIterator[Session]:
        """Gives the session that orders to brokers leave by: the account's, or without accounts the group key's."""
        if self.is_controlled or self._keyed is None:
            yield link.session
            return
        async with Session(self._keyed) as session:
            yield session

    async def drop(self, account: str, secret: str) -> None:
        """Closes a link that nobody uses any more."""
        if (link := self._of.pop((account, secret), None)) is not None:
            await link.close()
