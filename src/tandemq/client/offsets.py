"""Where a consumer keeps how far it has come: on the broker (clustering) or in a file of its own (broadcasting).

Both hold the newest value in memory and write it out every few seconds and at the end; a crash repeats what came in
between. Values only grow, unless somebody seeks.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Protocol

from tandemq.client.broker_api import BrokerApi
from tandemq.codec import bodies, fastjson
from tandemq.errors import ClientError, CodecError
from tandemq.model.topic import QueueRef


class OffsetStore(Protocol):
    def current(self, queue: QueueRef) -> int | None:
        """What is known in memory."""
        ...

    def update(self, queue: QueueRef, offset: int, *, may_go_back: bool = False) -> None: ...

    async def read(self, queue: QueueRef, *, zero_if_young: bool = True) -> int | None:
        """The stored value; None if the group never had one. RemotingError when it can't be asked.

        `zero_if_young`: a broker may answer 0 for a queue whose first message is still there.
        """
        ...

    async def persist(self, queues: Iterable[QueueRef]) -> None:
        """Writes what changed of these queues."""
        ...

    def forget(self, queue: QueueRef) -> None: ...

    def close(self) -> None: ...


class _Memory:
    """The values and which of them are not written yet."""

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

    def forget(self, queue: QueueRef) -> None:
        self.values.pop(queue, None)
        self.dirty.discard(queue)


class Addresses(Protocol):
    """The part of a session that knows where a broker is."""

    api: BrokerApi

    async def any_address(self, broker_name: str, topic: str) -> str: ...


class RemoteOffsets(_Memory):
    """On the broker that has the queue: what the whole group shares."""

    def __init__(self, session: Addresses, group: str) -> None:
        super().__init__()
        self._session = session
        self._group = group

    async def read(self, queue: QueueRef, *, zero_if_young: bool = True) -> int | None:
        address = await self._session.any_address(queue.broker_name, queue.topic)
        return await self._session.api.query_offset(address, self._group, queue, zero_if_young=zero_if_young)

    async def persist(self, queues: Iterable[QueueRef]) -> None:
        """Changed values only, all at once; one that can't be written stays dirty and its error is raised."""
        wanted = [queue for queue in queues if queue in self.dirty]
        outcomes = await asyncio.gather(*(self._write(queue) for queue in wanted), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _write(self, queue: QueueRef) -> None:
        offset = self.values[queue]
        address = await self._session.any_address(queue.broker_name, queue.topic)
        await self._session.api.update_offset(address, self._group, queue, offset)
        if self.values.get(queue) == offset:
            self.dirty.discard(queue)

    def close(self) -> None: ...


class LocalOffsets(_Memory):
    """In `<dir>/<ip@instance>/<group>/offsets.json`, the file and format of RocketMQ's Java client."""

    def __init__(self, directory: Path, owner: str, group: str) -> None:
        super().__init__()
        self.path = directory.expanduser() / owner / group / "offsets.json"
        self._lock = self._locked()
        self.values.update(self._load())

    def _locked(self) -> IO[bytes]:
        """One writer per file: two consumers that overwrite each other's offsets would skip messages."""
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
        if self.dirty:
            self.dirty.clear()
            table = {"offsetTable": bodies.queue_table_json(self.values)}
            await asyncio.to_thread(self._save, fastjson.dumps_unquoted(table))

    def _save(self, data: bytes) -> None:
        """The old file stays whole until the new one is on disk."""
        fresh = self.path.with_suffix(".json.tmp")
        with open(fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            os.replace(self.path, self.path.with_suffix(".json.bak"))
        os.replace(fresh, self.path)

    def forget(self, queue: QueueRef) -> None:
        """A broadcasting consumer has all queues; one that left the route may come back, so its value stays."""

    def close(self) -> None:
        self._lock.close()
