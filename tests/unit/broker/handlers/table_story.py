"""Topic, group and offset handlers over the same tables: what tests of those handlers share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tandemq.broker.handlers.groups import GroupHandlers
from tandemq.broker.handlers.offsets import OffsetHandlers
from tandemq.broker.handlers.pull import PullHandlers
from tandemq.broker.handlers.topics import TopicHandlers
from tandemq.codec import fastjson
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.model.topic import TopicConfig
from tandemq.testing.broker_parts import BrokerParts, FakeConnection, decoded


class CountingFile:
    """Stands for a table's file: counts how often a handler waited until its change was on disk."""

    def __init__(self) -> None:
        self.saves = 0

    async def saved(self) -> None:
        self.saves += 1


class TableStory:
    """The handlers, the tables beneath them, and what they saved and told."""

    def __init__(self) -> None:
        p = self.parts = BrokerParts()
        self.file: Any = CountingFile()
        self.deleted: list[str] = []
        self.connection: Any = FakeConnection()
        pulls = PullHandlers(
            p.store, p.topics, p.groups, p.offsets, p.members, p.live, p.clock, asyncio.get_running_loop(), p.stats
        )
        families = (
            TopicHandlers(
                p.topics, p.offsets, p.store, p.writer, self.file, p.clock, on_delete=self.deleted.append
            ),
            GroupHandlers(p.groups, p.offsets, self.file, p.clock),
            OffsetHandlers(p.store, p.topics, p.groups, p.offsets, pulls, p.clock, true_at=lambda: p.store.appended),
        )  # fmt: skip
        self.table: dict[int, Any] = {}
        for family in families:
            self.table.update(family.handlers())

    def topic(self, name: str) -> TopicConfig:
        found = self.parts.topics.get(name)
        assert found is not None
        return found

    async def ask(self, code: int, body: Any = None, **ext: str) -> Command:
        """Returns the answer to one request."""
        told = fastjson.dumps(body) if body is not None else b""
        answer = self.table[code](self.connection, Command(code, ext, told))
        if isinstance(answer, Awaitable):
            answer = await answer
        return decoded(answer)[0]

    async def refused(self, code: int, body: Any = None, **ext: str) -> ReplyError:
        """Returns the error with which a request is refused."""
        with pytest.raises(ReplyError) as caught:
            await self.ask(code, body, **ext)
        return caught.value


def told(story: Callable[[TableStory], Awaitable[None]]) -> Callable[[], None]:
    """Runs a story as a test."""

    def test() -> None:
        async def run() -> None:
            await story(TableStory())

        asyncio.run(run())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test
