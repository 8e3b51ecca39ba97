"""The broker's side of idempotent sends: keeps the table of producers up with the log, judges a send's claim.

A master that has read its log once needs no further scanning, its own appends are enough; a slave reads along in small
steps, so that it can judge soon after a promotion. How far it came is saved, so that the next start goes on from there.
Nobody waits for any of this until a send makes a claim: before that it takes little of the loop's time, and the disk is
read in another thread.
"""

import asyncio
import os
from pathlib import Path

from tandemq.broker.idempotence import IDEMPOTENT, Claim, Idempotence, Verdict, Window, parse_claim
from tandemq.broker.snapshots import SnapshotFile
from tandemq.codec.codes import ResponseCode
from tandemq.errors import ReplyError
from tandemq.model.message import decode_properties
from tandemq.store.message_store import MessageStore

_STEP_SECONDS = 1.0
_PACE_SECONDS = 0.02
"""Between two windows of a megabyte while no send waits: a gigabyte takes half a minute."""
_SAVE_SECONDS = 60.0


class IdempotentSends:
    """One per broker."""

    def __init__(self, store: MessageStore, folder: Path) -> None:
        self.table = Idempotence()
        self._store = store
        self._file = SnapshotFile(folder / "idempotence.json", self.table.snapshot)
        self._is_master = False
        self._task: asyncio.Task[None] | None = None
        self._saved_at = -1
        self._is_awaited = False
        """A send had to be put off because the log was not read to its end."""

    def start(self) -> None:
        snapshot = self._file.load()
        if snapshot is not None:
            self.table.load(snapshot, self._store.first_offset, self._store.dispatched)
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="idempotent sends")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self._save()
            await self._file.saved()

    def begin_writing(self) -> None:
        """This node takes sends from now on."""
        self._is_master = True
        self.table.begin_writing(self._store.appended)

    def end_writing(self) -> None:
        self._is_master = False

    async def _follow(self) -> None:
        saved_at = asyncio.get_running_loop().time()
        while True:
            pause = await self._step()
            if (now := asyncio.get_running_loop().time()) - saved_at >= _SAVE_SECONDS:
                saved_at = now
                self._save()
            await asyncio.sleep(pause)

    async def _step(self) -> float:
        """One window further; seconds until the next."""
        store, table = self._store, self.table
        if table.scanned > store.dispatched:
            table.cut(store.dispatched)  # the log was cut or replaced beneath us
        if self._is_master and table.is_ready:
            table.settle(store.dispatched)
            return _STEP_SECONDS
        window = table.window(store.first_offset, store.dispatched, store.segment_size)
        if window is None:
            return _STEP_SECONDS
        data = await self._read(window)
        if len(data) == window.stop - window.start and window.stop <= store.dispatched:  # else it was cut meanwhile
            table.passed(window, data)
        return 0.0 if self._is_awaited else _PACE_SECONDS

    async def _read(self, window: Window) -> bytes:
        fd, position, size = self._store.file_range(window.start, window.stop - window.start)
        own = os.dup(fd)  # the log may close its own meanwhile
        try:
            return await asyncio.to_thread(os.pread, own, size, position)
        finally:
            os.close(own)

    def _save(self) -> None:
        if self.table.scanned != self._saved_at:
            self._saved_at = self.table.scanned
            self._file.mark()

    def judge(self, properties: str, messages: int) -> tuple[Claim, Verdict] | None:
        """The claim of a send and what to do with it; None for a send that makes none. ReplyError refuses it."""
        if IDEMPOTENT not in properties:
            return None
        text = decode_properties(properties.encode()).get(IDEMPOTENT)
        if text is None:
            return None
        claim = parse_claim(text)
        if claim is None or claim.messages != messages:
            raise ReplyError(
                ResponseCode.MESSAGE_ILLEGAL, f"{IDEMPOTENT}={text!r} does not fit a send of {messages} messages"
            )
        if not self.table.is_ready:
            self._is_awaited = True
            raise ReplyError(
                ResponseCode.SYSTEM_BUSY,
                f"the log is read for repeats up to {self.table.scanned} of {self.table.horizon}: try again soon",
            )
        verdict = self.table.check(claim)
        if verdict.gap:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"send out of order: {verdict.gap}")
        return claim, verdict
