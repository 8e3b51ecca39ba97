"""Which part of the log is in memory, as far as we can know, and bringing the rest there without stopping the loop.

A pull's answer is written to the socket straight from the mapped log. If its pages are on disk only, that write would
wait for the disk, and with it every other client. So: what this process wrote itself, within the memory window, is
warm; anything else is read by a worker thread first (in a system call that lets go of the interpreter), in whole chunks
that are then remembered, so that a consumer on its way through old messages waits once per chunk. The kernel may have
dropped a chunk since; that costs one wait on the loop, for a chunk nobody used lately.
"""

import asyncio
import contextlib
import logging
import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tandemq.errors import StoreError
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

CHUNK_SHIFT = 20
"""Chunks of 1 MiB: some milliseconds of a slow disk."""
SPAN_CHUNKS_MAX = 16
"""An answer scattered wider than this is read slice by slice every time; remembering it would read too much."""
PENDING_MAX = 256
"""Answers waiting for the disk; beyond it a pull takes the wait on itself."""
WORKERS = 2
_VECTORS_MAX = 1024


class WarmLog:
    """Knows [end at start, end) within the memory window from the beginning, other chunks once they were read."""

    def __init__(self, store: MessageStore, loop: asyncio.AbstractEventLoop, window: Callable[[], int]) -> None:
        self._store = store
        self._loop = loop
        self._window = window
        """Bytes at the log's end that the kernel has room for."""
        self._written_from = store.appended
        self._chunks: dict[int, None] = {}
        self._executor: ThreadPoolExecutor | None = None
        self.pending = 0
        self.reads = 0
        """Answers that a worker read first, for metrics."""

    def is_warm(self, first: int, last: int) -> bool:
        """Returns whether the log's [first, last) can be sent at once."""
        if first >= self._written_from and first >= self._store.appended - self._window():
            return True
        low, high = first >> CHUNK_SHIFT, (last - 1) >> CHUNK_SHIFT
        return high - low < SPAN_CHUNKS_MAX and all(chunk in self._chunks for chunk in range(low, high + 1))

    @property
    def is_all_warm(self) -> bool:
        """Whether the whole log is in memory, as far as we can know."""
        return self.is_warm(self._store.first_offset, max(self._store.appended, self._store.first_offset + 1))

    async def before_search(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> None:
        """Lets a worker read what a search by time will look at, unless all is in memory or too many wait already."""
        if self.is_all_warm or self.pending >= PENDING_MAX:
            return
        ahead = self._store.search_ahead(topic, queue_id, timestamp_ms, upper)
        if ahead is None:
            return
        self.pending += 1
        self.reads += 1
        try:
            await self._loop.run_in_executor(self._workers(), ahead)
        finally:
            self.pending -= 1

    def _workers(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="cold-read")
        return self._executor

    def soon(self, slices: list[memoryview], first: int, last: int, then: Callable[[], None]) -> bool:
        """Lets a worker read them, then calls `then` on the loop; False: no room, go on without."""
        if self.pending >= PENDING_MAX:
            return False
        low, high = first >> CHUNK_SHIFT, (last - 1) >> CHUNK_SHIFT
        remembered = range(low, high + 1) if high - low < SPAN_CHUNKS_MAX else range(0)
        if remembered:
            try:
                slices = self._whole_chunks(low, high)
            except StoreError:
                remembered = range(0)  # retention took a part meanwhile: what was found is still mapped
        self.pending += 1
        self.reads += 1
        done = self._loop.run_in_executor(self._workers(), touch, slices)
        done.add_done_callback(lambda outcome: self._done(outcome, remembered, then))
        return True

    def _whole_chunks(self, low: int, high: int) -> list[memoryview]:
        store, segment_size = self._store, self._store.config.commit_log_segment_size
        position = max(low << CHUNK_SHIFT, store.first_offset)
        end = min((high + 1) << CHUNK_SHIFT, store.appended)
        found = []
        while position < end:
            stop = min(end, position - position % segment_size + segment_size)
            found.append(store.slice(position, stop - position))
            position = stop
        return found

    def _done(self, outcome: "asyncio.Future[None]", chunks: range, then: Callable[[], None]) -> None:
        self.pending -= 1
        if outcome.cancelled():
            return
        if (error := outcome.exception()) is not None:
            log.error("a read ahead of a pull failed", exc_info=error)
        for chunk in chunks:
            self._chunks.pop(chunk, None)
            self._chunks[chunk] = None
        while len(self._chunks) > max(1, self._window() >> CHUNK_SHIFT):
            del self._chunks[next(iter(self._chunks))]
        then()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def touch(slices: list[memoryview]) -> None:
    """Makes the kernel read every page of the slices; the interpreter is free meanwhile."""
    if not hasattr(os, "memfd_create"):
        for part in slices:
            zlib.crc32(part)  # lets go of the interpreter for all but the smallest
        return
    sink = os.memfd_create("tandemq-cold-read")
    try:
        for start in range(0, len(slices), _VECTORS_MAX):
            os.pwritev(sink, slices[start : start + _VECTORS_MAX], 0)
            with contextlib.suppress(OSError):
                os.ftruncate(sink, 0)
    finally:
        os.close(sink)
