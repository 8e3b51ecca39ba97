"""An operator has queues and index built anew from the log while the broker serves: begin, and ask how far it is.

The store does the steps on the loop, one at a time; what would block it runs in a worker thread. Both requests are
ours and need an admin account where access is controlled, as every code of this range does.
"""

import asyncio
import dataclasses
import logging
from typing import Any

import msgspec

from tandemq.clock import Clock
from tandemq.codec.codes import OperatorCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import StoreError
from tandemq.remoting.access.needs import GET, UPDATE, needs, on_cluster
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.store.message_store import MessageStore
from tandemq.store.online_rebuild import OnlineRebuild

log = logging.getLogger(__name__)


class RebuildHandlers:
    """At most one rebuild; what became of the last one can be asked until the next."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._rebuild: OnlineRebuild | None = None
        self._task: asyncio.Task[None] | None = None
        self._began = self._ended = 0.0
        self._error = ""

    def handlers(self) -> dict[int, Handler]:
        return {OperatorCode.REBUILD_VIEWS: self.begin, OperatorCode.REBUILD_STATUS: self.show}

    @needs(on_cluster(UPDATE))
    async def begin(self, connection: Connection, command: Command) -> bytes:
        """Starts a rebuild. Raises StoreError if one is running already."""
        rebuild = self._store.rebuild_views()
        self._rebuild, self._error = rebuild, ""
        self._began = self._clock.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._run(rebuild), name="rebuild views")
        log.info("rebuild of the views begins, asked by %s", connection.peer)
        return self.show(connection, command)

    @needs(on_cluster(GET))
    def show(self, connection: Connection, command: Command) -> bytes:
        body = msgspec.json.encode(self.status())
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    def status(self) -> dict[str, Any]:
        """Returns the progress that `tandemq store rebuild --online ADDRESS --json` prints, which is a contract."""
        if self._rebuild is None:
            return {"phase": "none", "running": False, "error": ""}
        found = self._rebuild.status()
        names = {"first_offset": "firstOffset", "end_offset": "endOffset", "queue_entries": "queueEntries",
                 "index_files": "indexFiles", "queues_corrected": "queuesCorrected"}  # fmt: skip
        running = self._task is not None and not self._task.done()
        ended = self._clock.monotonic() if running else self._ended
        return {
            **{names.get(key, key): value for key, value in dataclasses.asdict(found).items()},
            "running": running,
            "seconds": round(ended - self._began, 3),
            "error": self._error,
        }

    async def _run(self, rebuild: OnlineRebuild) -> None:
        loop = asyncio.get_running_loop()
        steps = rebuild.steps()
        try:
            for work in steps:
                await loop.run_in_executor(None, work)
            found = rebuild.status()
            log.info("rebuild of the views done, queues=%d corrected=%d", found.queues, found.queues_corrected)
        except (StoreError, OSError) as error:
            self._error = str(error)
            log.error("rebuild of the views failed: %s", error)
        finally:
            steps.close()
            self._ended = self._clock.monotonic()

    async def stop(self) -> None:
        """Gives up an unfinished rebuild before the store closes; the old views stay."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
