"""What only the writer of a group does: delayed messages, timers and transactions, and the note of how far they came.

start   while this broker may write, and no other one still runs them: what the log says last is where they begin
stop    with the right to write; what was begun ends first
"""

from collections.abc import Iterable

from tandemq.broker.live_config import LiveConfig
from tandemq.broker.services.delay import DelayService
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.half_check import CheckLimits
from tandemq.broker.services.progress_log import ProgressLog
from tandemq.broker.services.timers import TimerService
from tandemq.broker.services.transactions import TransactionService
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.timer_checkpoint import TimerCheckpointFile
from tandemq.broker.tables.topics import TopicTable
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.formats.service_progress import ServiceProgress
from tandemq.model.topic import SCHEDULE_TOPIC, TIMER_TOPIC
from tandemq.store.message_store import MessageStore


class MasterServices:
    """The services of one broker, which run while it may write."""

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        clock: Clock,
        live: LiveConfig,
        schedule: DelaySchedule,
        topics: TopicTable,
        offsets: OffsetTable,
        members: Members,
        timer_checkpoint: TimerCheckpointFile,
        *,
        store_host: bytes,
    ) -> None:
        self._store = store
        self._live = live
        self._schedule = schedule
        self.delay = DelayService(schedule, store, writer, clock)
        self.delay.cover_waiting()
        self.timers = TimerService(
            store, writer, clock, store_host=store_host, checkpoint=lambda: timer_checkpoint.known
        )
        for service in (self.delay, self.timers):
            service.undeliverable.ensure_topic = lambda topic: topics.create_internal(topic, 1)
        self.transactions = TransactionService(
            store,
            writer,
            offsets,
            members,
            clock,
            limits=self._check_limits,
            interval_ms=lambda: live.broker.transaction_check_interval_ms,
            store_host=store_host,
            broker_name=live.broker.broker_name,
            ensure_topic=lambda topic: topics.create_internal(topic, 1),
        )
        self._progress = ProgressLog(store, writer, clock, store_host=store_host, now=self._progress_now)
        self.delay.on_progress = self._progress.changed
        self.transactions.on_progress = self._progress.write

    def start(self) -> None:
        """Begins where the log says that they ended, whoever wrote it."""
        told = self._progress.last()
        end_of = self._store.queue_end
        self._schedule.begin(told.delay if told is not None else None, lambda level: end_of(SCHEDULE_TOPIC, level - 1))
        self.delay.start()
        self.timers.start()
        self.transactions.start(told)
        self._progress.begin()

    async def stop(self) -> None:
        await self.delay.stop()
        await self.timers.stop()
        await self.transactions.stop()
        self._progress.end()

    def arrived(self, queues: Iterable[tuple[str, int]]) -> None:
        """Tells those whose queues have got messages."""
        for topic, queue_id in queues:
            if topic == SCHEDULE_TOPIC:
                self.delay.arrived(queue_id)
            elif topic == TIMER_TOPIC:
                self.timers.arrived(queue_id)

    def told(self, is_master: bool) -> ServiceProgress | None:
        """Returns how far the services came by the log that readers see; None where nobody knows.

        A master writes it once more, so that the note outlives the segment that it stands in. What it has done since
        then is no part of the answer: its copies may still be cut.
        """
        if is_master:
            self._progress.renew()
            return self._progress.seen() or ServiceProgress()
        return self._progress.seen()

    def _progress_now(self) -> ServiceProgress:
        ledger = self.transactions.ledger
        return ServiceProgress(dict(self._schedule.offsets), ledger.half_offset, ledger.op_offset)

    def _check_limits(self) -> CheckLimits:
        config = self._live.broker
        return CheckLimits(
            timeout_ms=config.transaction_timeout_ms,
            check_max=config.transaction_check_max,
            retention_ms=self._live.store.file_reserved_hours * 3_600_000,
        )
