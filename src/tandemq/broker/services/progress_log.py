"""Writes into the log how far delayed messages and transaction checks have come, and finds it there again.

At most one record a second, and only while something moves (`formats/service_progress.py`). Files and tables of a
broker say the same, but beside the log: they may be ahead of one that was cut, lost its tail or came from elsewhere.
"""

import asyncio
import logging
from collections.abc import Callable

from tandemq.broker.new_message import NewMessage
from tandemq.broker.write_gate import WriteRefused
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.errors import StoreError
from tandemq.formats.log_mark import LOG_MARK_TOPIC
from tandemq.formats.record import parse_record
from tandemq.formats.service_progress import PROGRESS_QUEUE, ServiceProgress
from tandemq.model.message import StoredMessage
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 1.0
LOOK_BACK = 100
"""Records that are tried from the newest on: none is unreadable, unless a later version wrote it."""


class ProgressLog:
    """`begin` and `end` with the services whose progress `now` tells."""

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        clock: Clock,
        *,
        store_host: bytes,
        now: Callable[[], ServiceProgress],
    ) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._store_host = store_host
        self._now = now
        self._written: ServiceProgress | None = None
        self._is_running = False
        self._timer: asyncio.TimerHandle | None = None

    def last(self) -> ServiceProgress | None:
        """Returns what the log says last; None if it says nothing, as one that RocketMQ wrote."""
        found = self.seen()
        for message in self._store.undispatched():
            if message.topic == LOG_MARK_TOPIC and message.queue_id == PROGRESS_QUEUE:
                found = ServiceProgress.decode(message.body) or found
        return found

    def seen(self) -> ServiceProgress | None:
        """Returns what the log says last of what readers may see: enough for a slave, and found at once."""
        newest = self._newest()
        return newest[1] if newest is not None else None

    def begin(self) -> None:
        """Writes into the log where the services go on from, as `now` says."""
        self._is_running = True
        self._written = self.last() or ServiceProgress()
        self.write()

    def end(self) -> None:
        """Writes the last progress when the services stop, if writing is still allowed."""
        self.write()
        self._is_running = False

    def changed(self) -> None:
        """Schedules a write, because something moved."""
        if self._timer is None and self._is_running:
            self._timer = asyncio.get_running_loop().call_later(PROGRESS_SECONDS, self.write)

    def write(self) -> None:
        """Writes what has changed, at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_running and self._now() != self._written:
            self._append()

    def renew(self) -> None:
        """Writes it again if files have come since, of which retention may leave the newest only."""
        newest = self._newest()
        size = self._store.segment_size
        if self._is_running and newest is not None and newest[0].physical_offset // size < self._store.appended // size:
            self._append()

    def _append(self) -> None:
        progress = self._now()
        message = NewMessage(
            topic=LOG_MARK_TOPIC,
            queue_id=PROGRESS_QUEUE,
            body=progress.encode(),
            properties={},
            born_timestamp=self._clock.wall_ms(),
            born_host=self._store_host,
        )
        try:
            self._writer.append(message)
        except (StoreError, WriteRefused) as error:
            log.warning("the progress of delayed messages and transactions was not written: %s", error)
        else:
            self._written = progress

    def _newest(self) -> tuple[StoredMessage, ServiceProgress] | None:
        reader = self._store.reader
        first, last = reader.queue_range(LOG_MARK_TOPIC, PROGRESS_QUEUE)
        for offset in range(last - 1, max(first, last - LOOK_BACK) - 1, -1):
            found = reader.get(LOG_MARK_TOPIC, PROGRESS_QUEUE, offset, 1, 1, None)
            if found.slices:
                message = parse_record(found.slices[0])
                if (progress := ServiceProgress.decode(message.body)) is not None:
                    return message, progress
        return None
