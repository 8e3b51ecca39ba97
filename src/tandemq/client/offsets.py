"""Where a consumer keeps how far it has come: on the broker (clustering) or in a file of its own (broadcasting).

Both hold the newest value in memory and write it out every few seconds and at the end; a crash repeats what came in
between. Values only grow, unless somebody seeks or resets.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from pathlib import Path
from typing import IO, Any, Protocol

from tandemq.client.broker_api import BrokerApi
from tandemq.codec import bodies, fastjson
from tandemq.errors import ClientError, CodecError
from tandemq.model.topic import QueueRef


class OffsetStore(Protocol):
    """How far each queue is consumed."""

    def current(self, queue: QueueRef) -> int | None:
        """Returns what is known in memory."""
        ...

    def update(self, queue: QueueRef, offset: int, *, may_go_back: bool = False) -> None:
        """Sets a value in memory; a lower one only if `may_go_back`."""
        ...

    def adopt(self, queue: QueueRef, offset: int) -> None:
        """Takes over a value that was just read, whatever was known: there is nothing to write."""
        ...

    async def read(self, queue: QueueRef, *, zero_if_young: bool = True) -> int | None:
        """Returns the stored value; None if the group never had one. RemotingError when it can't be asked.

        `zero_if_young`: a broker may answer 0 for a queue whose first message is still there.
        """
        ...

    async def persist(self, queues: Iterable[QueueRef]) -> None:
        """Writes what changed of these queues. What can't be written raises and is written the next time."""
        ...

    def forget(self, queue: QueueRef) -> None:
        """Drops a queue that was given up."""
        ...

    def close(self) -> None:
        """Lets go of what the store holds open."""
        ...


class _Memory:
    """The values, and which of them are not written yet."""

    def __init__(self) -> None:
        self.values: dict[QueueRef, int] = {}
        self.dirty: set[QueueRef] = set()

    def current(self, queue: QueueRef) -> int | None:
        return self.values.get(queue)

    def update(self, queue: QueueRef, offset: int, *, may_go_back: bool = False) -> None:
        known = self.values.get(queue)
        if known is None or offset > known or (may_go_back and offset != known):
            self.values[queue] = offset
            self.dirty.add(queue)

    def adopt(self, queue: QueueRef, offset: int) -> None:
        self.values[queue] = offset
        self.dirty.discard(queue)

    def forget(self, queue: QueueRef) -> None:
        self.values.pop(queue, None)
        self.dirty.discard(queue)


class _Writes:
    """Writes under way, one per key. A write goes on to its end when whoever asked for it is cancelled."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[None]] = {}

    async def after_earlier(self, key: Hashable) -> None:
        """Returns when no write of this key is under way."""
        while (running := self._running.get(key)) is not None:
            await asyncio.wait([running])

    async def run(self, key: Hashable, work: Coroutine[Any, Any, None]) -> None:
        """Writes; raises what the write raised."""
        task = self._running[key] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: self._ended(key, done))
        await asyncio.shield(task)

    def _ended(self, key: Hashable, done: "asyncio.Task[None]") -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # marked as seen, in case whoever waited was cancelled


class Readers(Protocol):
    """The part of a session that asks brokers."""

    api: BrokerApi

    async def ask_reader(self, broker_name: str, topic: str, ask: Callable[[str], Awaitable[Any]]) -> Any: ...


class RemoteOffsets(_Memory):
    """On the broker that has the queue: what the whole group shares."""

    def __init__(self, session: Readers, group: str) -> None:
        super().__init__()
        self._session = session
        self._group = group
        self._writes = _Writes()

    async def read(self, queue: QueueRef, *, zero_if_young: bool = True) -> int | None:
        return await self._session.ask_reader(  # type: ignore[no-any-return]
            queue.broker_name,
            queue.topic,
            lambda address: self._session.api.query_offset(address, self._group, queue, zero_if_young=zero_if_young),
        )

    async def persist(self, queues: Iterable[QueueRef]) -> None:
        """Writes changed values, all at once; one that can't be written stays dirty and its error is raised."""
        outcomes = await asyncio.gather(*(self._written(queue) for queue in queues), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _written(self, queue: QueueRef) -> None:
        """Writes one queue's value, after a write of it that is under way.

        Brokers handle requests in several threads: of two writes sent one after the other, the older may come last and
        stay. So the next one waits for the answer.
        """
        await self._writes.after_earlier(queue)
        if queue in self.dirty:
            await self._writes.run(queue, self._write(queue))

    async def _write(self, queue: QueueRef) -> None:
        offset = self.values[queue]
        await self._session.ask_reader(
            queue.broker_name,
            queue.topic,
            lambda address: self._session.api.update_offset(address, self._group, queue, offset),
        )
        if self.values.get(queue) == offset:
            self.dirty.discard(queue)

    def close(self) -> None:
        """Holds nothing open."""


class LocalOffsets(_Memory):
    """In `<dir>/<ip@instance>/<group>/offsets.json`, the file and format of RocketMQ's Java client."""

    def __init__(self, directory: Path, owner: str, group: str) -> None:
        super().__init__()
        self.path = directory.expanduser() / owner / group / "offsets.json"
        self._writes = _Writes()
        self._lock = self._locked()
        self.values.update(self._load())

    def _locked(self) -> IO[bytes]:
        """Allows one writer per file: two consumers that overwrite each other's offsets would skip messages."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(self.path.with_suffix(".lock"), "ab")  # noqa: SIM115  held until close
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise ClientError(
                f"another broadcasting consumer uses {self.path}: give each one its own instanceName"
            ) from None
        return lock

    def _load(self) -> dict[QueueRef, int]:
        for path in (self.path, self.path.with_suffix(".json.bak")):
            with contextlib.suppress(FileNotFoundError, CodecError):
                table = bodies.queue_table_of(bodies.load_object(path.read_bytes(), str(path)).get("offsetTable"))
                return {queue: int(offset) for queue, offset in table.items()}
        return {}

    async def read(self, queue: QueueRef, *, zero_if_young: bool = True) -> int | None:
        return self.values.get(queue)

    async def persist(self, queues: Iterable[QueueRef]) -> None:
        """Writes the whole file if anything changed; OSError leaves the changes for the next time."""
        await self._writes.after_earlier(self.path)
        if self.dirty:
            await self._writes.run(self.path, self._write())

    async def _write(self) -> None:
        changed, self.dirty = self.dirty, set()
        table = {"offsetTable": bodies.queue_table_json(self.values)}
        try:
            await asyncio.to_thread(self._save, fastjson.dumps_unquoted(table))
        except BaseException:
            self.dirty |= changed
            raise

    def _save(self, data: bytes) -> None:
        """Replaces the file by a new one that is on disk; until then the old one stays whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)  # whoever clears temporary files took it away
        fresh = self.path.with_suffix(".json.tmp")
        with open(fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            os.replace(self.path, self.path.with_suffix(".json.bak"))
        os.replace(fresh, self.path)

    def forget(self, queue: QueueRef) -> None:
        """Keeps the value: a broadcasting consumer has all queues, and one that left the route may come back."""

    def close(self) -> None:
        self._lock.close()
