"""The broker's side of idempotent sends: keeps the table of producers up with the log, checks the claims of sends.

A master that has read its log once needs no further scanning, because its own appends are enough. A slave reads along
in small steps, so that it can check claims soon after a promotion. How far it came is saved for the next start. Nobody
waits for any of this until a send makes a claim: until then it takes little of the loop's time, and another thread
reads the disk.
"""

import asyncio
import os
from pathlib import Path

from tandemq.broker.idempotence import (
    IDEMPOTENT,
    Claim,
    Idempotence,
    Known,
    Message,
    RepeatCheck,
    Window,
    parse_claim,
    sequence_of,
)
from tandemq.broker.tables.snapshots import SnapshotFile
from tandemq.codec.codes import ResponseCode
from tandemq.errors import ReplyError
from tandemq.formats.batch import MessageBatch, split_batch
from tandemq.formats.crc import crc32
from tandemq.formats.record import CRC_MASK, Buffer
from tandemq.model.message import COMPRESSED, decode_properties
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
        self._file = SnapshotFile(folder / "idempotence.json", self.table.picture)
        self._is_master = False
        self._task: asyncio.Task[None] | None = None
        self._saved_at = -1
        self._is_awaited = False
        """A send had to be put off because the log was not read to its end."""

    def start(self) -> None:
        store = self._store
        self._file.load_into(lambda snapshot: self.table.load(snapshot, store.first_offset, store.dispatched))
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="idempotent sends")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self._save()
            await self._file.settled()

    def begin_writing(self) -> None:
        """Takes sends from now on."""
        self._is_master = True
        self.table.begin_writing(self._store.appended)

    def end_writing(self) -> None:
        self._is_master = False

    def log_was_cut(self) -> None:
        """Forgets what was read of the part that is gone: it says nothing about what comes in its place."""
        if self.table.scanned > self._store.dispatched:
            self.table.truncate(self._store.dispatched)

    async def _follow(self) -> None:
        saved_at = asyncio.get_running_loop().time()
        while True:
            pause = await self._step()
            if (now := asyncio.get_running_loop().time()) - saved_at >= _SAVE_SECONDS:
                saved_at = now
                self._save()
            await asyncio.sleep(pause)

    async def _step(self) -> float:
        """Reads one window; returns the seconds until the next."""
        store, table = self._store, self.table
        if table.scanned > store.dispatched:
            table.truncate(store.dispatched)  # the log was truncated or replaced beneath us
        table.forget_before(store.first_offset)
        if self._is_master and table.is_ready:
            table.settle(store.dispatched)
            return _STEP_SECONDS
        window = table.window(store.first_offset, store.dispatched, store.segment_size)
        if window is None:
            return _STEP_SECONDS
        data = await self._read(window)
        if (
            len(data) == window.stop - window.start and window.stop <= store.dispatched
        ):  # else it was truncated meanwhile
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

    def check(
        self, properties: str, body: bytes | memoryview, sys_flag: int, batch: MessageBatch | None = None
    ) -> tuple[Claim, RepeatCheck] | None:
        """Returns the claim of a send and what to do with it, or None if the send makes none. ReplyError refuses it.

        `batch` holds the messages of a batch send, whose body is `body`.
        """
        if IDEMPOTENT not in properties:
            return None
        text = decode_properties(properties.encode()).get(IDEMPOTENT)
        if text is None:
            return None
        claim = parse_claim(text)
        count = 1 if batch is None else len(batch)
        if claim is None or claim.messages != count:
            raise ReplyError(
                ResponseCode.MESSAGE_ILLEGAL, f"{IDEMPOTENT}={text!r} does not fit a send of {count} messages"
            )
        if not self.table.is_ready:
            self._is_awaited = True
            raise ReplyError(
                ResponseCode.SYSTEM_BUSY,
                f"the log is read for repeats up to {self.table.scanned} of {self.table.horizon}: try again soon",
            )
        messages = _single if batch is None else _messages
        checked = self.table.check(claim, lambda: messages(claim, body, sys_flag))
        if checked.problem:
            code = ResponseCode.MESSAGE_ILLEGAL if checked.is_final else ResponseCode.SYSTEM_ERROR
            raise ReplyError(code, f"send out of order: {checked.problem}")
        return claim, checked

    def appended(self, claim: Claim, last_body: Buffer, end: int, queue_offset: int, stored_ms: int) -> None:
        """Notes that all messages of a send are in the log; the last record has this queue offset and ends at `end`."""
        last = Known(claim.last, end, queue_offset, stored_ms, crc32(last_body) & CRC_MASK)
        self.table.appended(claim.producer, last)


def _single(claim: Claim, body: bytes | memoryview, sys_flag: int) -> list[Message]:
    return [Message(claim.first, None if sys_flag & COMPRESSED else crc32(body) & CRC_MASK)]


def _messages(claim: Claim, body: bytes | memoryview, sys_flag: int) -> list[Message]:
    """Returns the sequence and the checksum of each message of a batch send."""
    found = []
    for number, (_, part, properties) in enumerate(split_batch(body)):
        sequence = sequence_of(properties, claim.producer)
        if sequence is None:
            raise ReplyError(
                ResponseCode.MESSAGE_ILLEGAL, f"message {number} of the batch has no key of producer {claim.producer}"
            )
        found.append(Message(sequence, crc32(part) & CRC_MASK))
    return found
