"""A broker's administration handlers over one topic with five messages: what tests of those handlers share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tandemq.broker.handlers.admin import AdminHandlers
from tandemq.broker.handlers.clients_admin import ClientAdminHandlers
from tandemq.broker.handlers.peers import HaFacts, PeerHandlers
from tandemq.broker.handlers.reset import ResetHandlers
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.timers import TimerService
from tandemq.broker.subscriptions import parse_subscription
from tandemq.codec import fastjson
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.model.topic import QueueRef, SubscriptionGroupConfig
from tandemq.testing.broker_parts import ADDRESS, HOST, BrokerParts, FakeConnection, decoded


class AdminStory:
    """The handlers, the parts beneath them, and what they told others."""

    def __init__(self) -> None:
        p = self.parts = BrokerParts()
        self.slave = False
        self.woken: list[tuple[str, int]] = []
        self.announced: list[tuple[str, str]] = []
        self.consumer, self.admin = FakeConnection(), FakeConnection("10.0.0.7:1")
        schedule = DelaySchedule((1000,), p.clock.wall_ms)
        families = (
            AdminHandlers(
                p.live, p.store, p.writer, p.topics, p.groups, p.offsets, p.members, p.stats, p.progress, p.clock,
                address=ADDRESS, runtime_info=lambda: {"putTps": "1 2 3"},
                retain=lambda manual: p.store.retain(None, manual, p.writer.append_mark),
            ),
            ClientAdminHandlers(p.store, p.topics, p.groups, p.members, p.clock, broker_name="broker-a"),
            ResetHandlers(
                p.live, p.store, p.topics, p.groups, p.offsets, p.members, p.clock,
                is_slave=lambda: self.slave, wake=lambda topic, queue: self.woken.append((topic, queue)),
            ),
            PeerHandlers(
                schedule, TimerService(p.store, p.writer, p.clock, store_host=HOST), p.clock,
                is_slave=lambda: self.slave, address=ADDRESS,
                ha_facts=lambda: HaFacts(ha_address="10.0.0.1:10912", master_flush_offset=7, extra={"ours": "1"}),
                ha_status=lambda: {"master": True},
                master_announced=lambda ha, address: self.announced.append((ha, address)),
            ),
        )  # fmt: skip
        self.table: dict[int, Any] = {}
        for family in families:
            self.table.update(family.handlers())

    async def fill(self) -> None:
        self.parts.topic("T", 2)
        self.parts.groups.put(SubscriptionGroupConfig(name="g"))
        for n in range(5):
            self.parts.send("T", b"%d" % n, n % 2, TAGS="A" if n < 3 else "B")
            self.parts.clock.advance(1)
        await self.parts.settle()
        self.parts.offsets.commit("g", "T", 0, 2)

    def connect(self, language: str = "JAVA", version: int = 407) -> None:
        self.parts.members.register_consumer(
            "g", self.consumer, "client-1", language, version, 990.0,  # type: ignore[arg-type]
            consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING", consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscriptions=[parse_subscription("T", "A", version=5)],
        )  # fmt: skip

    async def reply(self, code: int, **ext: str) -> Command:
        result = self.table[code](self.admin, Command(code, ext))
        if isinstance(result, Awaitable):
            result = await result
        return decoded(result)[0]

    async def json(self, code: int, **ext: str) -> Any:
        return fastjson.loads((await self.reply(code, **ext)).body)

    async def refusal(self, code: int, **ext: str) -> int:
        """Returns the code with which a request is refused."""
        try:
            reply = await self.reply(code, **ext)
        except ReplyError as error:
            return error.code
        raise AssertionError(f"request {code} was answered with {reply.code}, not refused")


def run_story(story: Callable[[AdminStory], Awaitable[None]]) -> None:
    """Runs a story on a broker whose topic T has five messages and whose group g has consumed two."""

    async def main() -> None:
        s = AdminStory()
        await s.fill()
        await story(s)

    asyncio.run(main())


def queue_of_t(queue_id: int) -> QueueRef:
    """Returns a queue of the story's topic."""
    return QueueRef("T", "broker-a", queue_id)
