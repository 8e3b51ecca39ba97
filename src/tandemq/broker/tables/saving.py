"""When a table's file is saved: soon after a change, changes in between together, and again when the disk refused."""

import asyncio
import logging
from pathlib import Path

from tandemq.errors import StoreError

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""A full disk is tried again this often: whoever made room expects the table on it."""


class SavingFile:
    """One table's file. `mark` asks for a save soon; `saved` waits until every change marked so far is on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._marked = False
        self._task: asyncio.Task[None] | None = None
        self._failure: OSError | None = None
        """Why the last save failed; the table in memory stays right."""
        self._retry: asyncio.TimerHandle | None = None

    async def _write(self) -> None:
        """Writes what there is to write; an OSError is tried again."""
        raise NotImplementedError

    def mark(self) -> None:
        """Asks for a save; it begins after this turn of the loop."""
        self._marked = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._save(), name=f"save {self.path.name}")

    async def saved(self) -> None:
        """Returns when no change waits to be saved. Raises StoreError if the disk did not take the last ones."""
        await self._until_idle()
        if self._failure is not None:
            raise StoreError(
                f"{self.path.name} was not saved ({self._failure}): the change holds until the broker ends, and is "
                "saved as soon as the disk takes it"
            )

    async def settled(self) -> None:
        """Waits, at a stop, until nothing is being saved any more, whatever came of it."""
        await self._until_idle()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _until_idle(self) -> None:
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def _save(self) -> None:
        while self._marked:
            self._marked = False
            try:
                await self._write()
            except OSError as error:
                log.error("%s was not saved, and is tried again: %s", self.path, error)
                self._failure = error
                if self._retry is None:
                    self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._try_again)
            else:
                self._failure = None

    def _try_again(self) -> None:
        self._retry = None
        self.mark()
