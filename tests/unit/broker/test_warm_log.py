"""What may be sent straight from the mapped log, and what a worker reads first."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable

import pytest

from tandemq.broker.warm_log import CHUNK_SHIFT, PENDING_MAX, SPAN_CHUNKS_MAX, WarmLog, touch
from tandemq.store.search_ahead import SearchAhead
from tandemq.testing.broker_parts import BrokerParts

CHUNK = 1 << CHUNK_SHIFT


class Story:
    """A log of 3 MiB, one before the start."""

    def __init__(self) -> None:
        self.parts = BrokerParts()
        self.window = 100 * CHUNK
        self.fill(CHUNK)
        self.start = self.parts.store.appended
        self.log = WarmLog(self.parts.store, asyncio.get_running_loop(), lambda: self.window)
        self.fill(3 * CHUNK)

    def fill(self, until: int) -> None:
        while self.parts.store.appended < until:
            self.parts.send("T", b"x" * 100_000)

    async def read(self, first: int, last: int) -> None:
        done = asyncio.Event()
        assert self.log.soon([memoryview(b"x")], first, last, done.set)
        await asyncio.wait_for(done.wait(), 10)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_what_this_process_wrote_is_warm_within_the_memory_window() -> None:
    async def story() -> None:
        s = Story()
        assert s.log.is_warm(s.start, s.start + 100)
        assert not s.log.is_warm(s.start - 1, s.start + 100)
        s.window = 1000
        assert not s.log.is_warm(s.start, s.start + 100)
        end = s.parts.store.appended
        assert s.log.is_warm(end - 1000, end)

    run(story)


def test_what_was_read_once_is_warm_until_others_push_it_out() -> None:
    async def story() -> None:
        s = Story()
        s.log._written_from = 1 << 40
        await s.read(5, CHUNK + 5)
        assert s.log.is_warm(0, 2 * CHUNK)
        assert not s.log.is_warm(0, 2 * CHUNK + 1)
        s.window = CHUNK
        await s.read(2 * CHUNK, 2 * CHUNK + 1)
        assert not s.log.is_warm(0, 1)
        assert s.log.is_warm(2 * CHUNK, 3 * CHUNK)
        assert (s.log.pending, s.log.reads) == (0, 2)
        s.log.close()

    run(story)


def test_a_scattered_answer_is_read_but_not_remembered() -> None:
    async def story() -> None:
        s = Story()
        s.log._written_from = 1 << 40
        await s.read(0, (SPAN_CHUNKS_MAX + 1) * CHUNK)
        assert not s.log.is_warm(0, 1)
        s.log.close()

    run(story)


def test_no_more_than_so_many_wait_for_the_disk() -> None:
    async def story() -> None:
        s = Story()
        s.log.pending = PENDING_MAX
        assert not s.log.soon([], 0, 1, lambda: None)

    run(story)


def test_touching_reads_every_slice_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes a limited number of slices at once; none may be left out."""
    real, read = os.pwritev, []

    def pwritev(sink: int, slices: list[memoryview], offset: int) -> int:
        read.extend(bytes(part) for part in slices)
        return real(sink, slices, offset)

    monkeypatch.setattr("os.pwritev", pwritev)
    wanted = [b"%d" % number for number in range(3000)]
    touch([memoryview(part) for part in wanted])
    touch([])
    assert read == wanted


def test_a_search_in_old_messages_is_gone_before_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """By time, nobody knows before where it leads; in a log that is all in memory it costs nothing."""

    async def story() -> None:
        s = Story()
        await s.parts.settle()
        s.parts.store.flush_all()
        threads: list[str] = []
        monkeypatch.setattr(SearchAhead, "__call__", lambda ahead: threads.append(threading.current_thread().name))
        await s.log.before_search("T", 0, 1)
        assert [name.split("_")[0] for name in threads] == ["cold-read"]
        await s.log.before_search("unknown", 0, 1)
        s.log._written_from = 0
        await s.log.before_search("T", 0, 1)
        assert (len(threads), s.log.reads, s.log.pending) == (1, 1, 0)

    run(story)
