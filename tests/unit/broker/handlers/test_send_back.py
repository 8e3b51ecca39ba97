"""CONSUMER_SEND_MSG_BACK: retry topic, delay level, dead letters, refusals."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tandemq.broker.handlers.send_back import SendBackHandlers
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.model.message import StoredMessage
from tandemq.model.topic import SubscriptionGroupConfig
from tandemq.testing.broker_parts import BrokerParts, FakeConnection


class Story:
    def __init__(self, **options: object) -> None:
        self.parts = BrokerParts(**options)
        self.connection = FakeConnection()
        self.slave = False
        p = self.parts
        self.handlers = SendBackHandlers(
            p.live, p.store, p.writer, p.topics, p.groups, p.stats, is_slave=lambda: self.slave
        )
        p.groups.put(SubscriptionGroupConfig(name="g"))

    async def message(self, **properties: str) -> int:
        offset = self.parts.send("T", b"body", **properties).physical_offset
        await self.parts.settle()
        return offset

    async def back(self, offset: int, *, version: int = 407, **ext: str) -> int:
        fields = {"offset": str(offset), "group": "g", "delayLevel": "0", **ext}
        reply = self.handlers.send_back(self.connection, Command(36, fields, version=version))  # type: ignore[arg-type]
        assert reply is None
        await self.parts.settle()
        return self.connection.sent.pop().code

    def scheduled(self, level: int) -> StoredMessage:
        return self.parts.read("SCHEDULE_TOPIC_XXXX", level - 1)[-1]


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_the_first_failure_waits_ten_seconds() -> None:
    """Level 3, for %RETRY%g, tried once, with where it came from in its properties."""

    async def story() -> None:
        s = Story()
        offset = await s.message(KEYS="k", TAGS="A")
        assert await s.back(offset) == 0
        copy = s.scheduled(3)
        assert copy.properties["REAL_TOPIC"] == "%RETRY%g"
        assert copy.properties["RETRY_TOPIC"] == "T"
        assert copy.properties["ORIGIN_MESSAGE_ID"] == s.parts.read("T")[0].message_id
        assert (copy.properties["KEYS"], copy.properties["WAIT"], copy.reconsume_times) == ("k", "false", 1)
        assert "%RETRY%g" in s.parts.topics
        assert dict(s.parts.stats.send_backs())["T", "g"].messages == 1

    run(story)


def test_the_consumer_may_choose_the_level() -> None:
    """delayLevel of the request counts."""

    async def story() -> None:
        s = Story()
        assert await s.back(await s.message(), delayLevel="1") == 0
        assert s.scheduled(1).body == b"body"

    run(story)


@pytest.mark.parametrize(("ext", "version"), [({"delayLevel": "-1"}, 407), ({"maxReconsumeTimes": "0"}, 407)])
def test_the_last_failure_goes_to_the_dead_letters(ext: dict[str, str], version: int) -> None:
    """No more tries, or the consumer gives up: %DLQ%g at once."""

    async def story() -> None:
        s = Story()
        assert await s.back(await s.message(), version=version, **ext) == 0
        (dead,) = s.parts.read("%DLQ%g")
        assert (dead.body, dead.properties["RETRY_TOPIC"], dead.reconsume_times) == (b"body", "T", 1)

    run(story)


def test_old_clients_limits_do_not_count() -> None:
    """maxReconsumeTimes of a client before V3_4_9 is ignored."""

    async def story() -> None:
        s = Story()
        assert await s.back(await s.message(), version=63, maxReconsumeTimes="0") == 0
        assert s.parts.read("%DLQ%g") == []

    run(story)


def test_a_group_without_retry_queues_drops() -> None:
    """retryQueueNums 0: success, nothing stored."""

    async def story() -> None:
        s = Story()
        s.parts.groups.put(SubscriptionGroupConfig(name="g", retry_queues=0))
        offset = await s.message()
        reply = s.handlers.send_back(s.connection, Command(36, {"offset": str(offset), "group": "g"}))  # type: ignore[arg-type]
        assert isinstance(reply, bytes)
        await s.parts.settle()
        assert {topic for topic, _ in s.parts.store.reader.queues()} == {"T"}

    run(story)


@pytest.mark.parametrize(
    ("change", "code"),
    [("offset", 1), ("middle", 1), ("group", 26), ("slave", 1), ("permission", 16)],
)
def test_refusals(change: str, code: int) -> None:
    """Each with upstream's code."""

    async def story() -> None:
        s = Story(broker_permission=4 if change == "permission" else 6)
        s.parts.groups.auto_create = False
        s.slave = change == "slave"
        offset = await s.message()
        offset += {"offset": 1_000_000, "middle": 7}.get(change, 0)
        with pytest.raises(ReplyError) as caught:
            await s.back(offset, group="nobody" if change == "group" else "g")
        assert caught.value.code == code

    run(story)
