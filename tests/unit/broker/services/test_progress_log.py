"""How far services have come, written into the log and found there again, whatever became of its end."""

import asyncio

from tandemq.broker.services.progress_log import ProgressLog
from tandemq.formats.service_progress import ServiceProgress
from tandemq.testing.broker_parts import HOST, BrokerParts


class Node:
    """A broker's parts with services that have come as far as `progress` says."""

    def __init__(self) -> None:
        self.parts = BrokerParts()
        self.progress = ServiceProgress()
        self.log = self.of()

    def of(self) -> ProgressLog:
        parts = self.parts
        return ProgressLog(parts.store, parts.writer, parts.clock, store_host=HOST, now=lambda: self.progress)


def test_a_broker_whose_services_did_nothing_writes_nothing() -> None:
    async def story() -> None:
        node = Node()
        node.log.begin()
        node.log.end()
        assert node.parts.store.appended == 0
        assert node.log.last() is None

    asyncio.run(story())


def test_the_newest_word_of_the_log_counts_also_where_readers_do_not_see_it_yet() -> None:
    async def story() -> None:
        node = Node()
        node.log.begin()
        for number in (1, 2):
            node.progress = ServiceProgress({1: number})
            node.log.write()
        assert node.log.seen() is None
        assert node.log.last() == ServiceProgress({1: 2})
        await node.parts.settle()
        assert node.log.seen() == ServiceProgress({1: 2})

    asyncio.run(story())


def test_a_log_that_was_cut_says_what_was_true_before() -> None:
    async def story() -> None:
        node = Node()
        node.log.begin()
        node.progress = ServiceProgress({1: 10}, half=1)
        node.log.write()
        end = node.parts.store.appended
        node.progress = ServiceProgress({1: 20}, half=2)
        node.log.write()
        await node.parts.settle()
        node.parts.store.truncate(end)
        assert node.of().last() == ServiceProgress({1: 10}, half=1)

    asyncio.run(story())


def test_a_change_is_written_soon_and_once_and_not_after_the_end() -> None:
    async def story() -> None:
        node = Node()
        node.log.changed()
        assert node.log._timer is None, "nothing before it begins"
        node.log.begin()
        node.progress = ServiceProgress({1: 1})
        node.log.changed()
        timer = node.log._timer
        node.log.changed()
        assert node.log._timer is timer is not None
        node.log.end()
        assert node.log.last() == ServiceProgress({1: 1})
        size = node.parts.store.appended
        node.progress = ServiceProgress({1: 2})
        node.log.write()
        assert node.parts.store.appended == size

    asyncio.run(story())


def test_what_was_refused_is_written_the_next_time() -> None:
    async def story() -> None:
        node = Node()
        node.log.begin()
        node.progress = ServiceProgress({1: 1})
        node.parts.writer.gate.refuse("no")
        node.log.write()
        assert node.log.last() is None
        node.parts.writer.gate.allow()
        node.log.write()
        assert node.log.last() == ServiceProgress({1: 1})

    asyncio.run(story())


def test_it_is_said_again_before_retention_can_take_it() -> None:
    async def story() -> None:
        node = Node()
        node.log.begin()
        node.progress = ServiceProgress({1: 1})
        node.log.write()
        await node.parts.settle()
        node.log.renew()
        first = node.parts.store.appended
        assert first < 1000, "it lies in the newest file"
        for _ in range(5):
            node.parts.send("T", bytes(1 << 20))
        await node.parts.settle()
        before = node.parts.store.appended
        node.log.renew()
        assert node.parts.store.appended > before

    asyncio.run(story())
