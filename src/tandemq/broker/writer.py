"""The one path by which messages get into the log: check, append, wait for what the ack level names, answer.

    append ──▶ (end of this loop turn) dispatch to the queues, wake parked pulls, ask for one flush
       └─────▶ AckQueue: local flush and copies, together, under one deadline ──▶ done(status, reason)

A level that an append alone satisfies never enters the queue: the caller answers in the same turn, with no future.
Flushes are asked for once per loop turn, not per message: what was appended in the turn shares one fdatasync.

Work that nobody waits for is put off: dispatch while no pull is parked, copies while no send waits for an
acknowledgement. It is done as soon as the loop has looked at its sockets and found nothing to read, so that no send
waits for it; while sends keep coming, after PUT_OFF_MAX at the latest, so that its fixed cost is shared by the sends of
many turns. One go takes at most SLICE_SIZE of log, others come in between. `catch_up` does it at once; the server calls
it before every request that is no plain send, so that such a request sees all that was sent before it.

All of it runs on the loop that owns the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from tandemq.broker.new_message import NewMessage
from tandemq.broker.write_gate import LEASE_OVER, WriteGate, WriteRefused
from tandemq.clock import Clock
from tandemq.codec.codes import ResponseCode
from tandemq.errors import ReplyError, StoreError
from tandemq.formats.batch import MessageBatch
from tandemq.formats.envelope import delay_level, to_schedule
from tandemq.formats.log_mark import LogMark
from tandemq.model.ack_level import AckLevel, parse_level
from tandemq.model.message import ACK_COPIES, TRANSACTION_COMMIT, TRANSACTION_MASK, WAIT, encode_properties
from tandemq.model.topic import TopicConfig
from tandemq.replication.acks import AckQueue, Complete, PutStatus
from tandemq.replication.fence import Fence
from tandemq.store.message_store import DISPATCH_SIZE, Appended, AppendedBatch, MessageStore

log = logging.getLogger(__name__)

TOPIC_COPIES = "tandemq.copies"
"""Topic attribute: the ack level of messages to this topic that carry none of their own."""

PUT_OFF_MAX = 0.005
"""Seconds. Nobody sees it: whoever asks for more than to send makes it happen at once."""
SLICE_SIZE = 512 << 10
"""Bytes of log that are dispatched in one go while others may wait: a millisecond or two."""

RETRY_SECONDS = 1.0
COMPLAINT_SECONDS = 10.0
"""How long a disk that is full is not mentioned again."""

ONE_COPY = AckLevel(1)

Done = Callable[[PutStatus, str], None]
Queues = set[tuple[str, int]]


class PutResult(NamedTuple):
    """What became of a message that a service put."""

    status: PutStatus
    appended: Appended
    reason: str


class MessageWriter:
    """Appends for handlers and services, and completes them when their level is reached."""

    def __init__(
        self,
        store: MessageStore,
        acks: AckQueue,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        level: AckLevel,
        sync_flush: bool,
        flush_timeout_ms: int,
        copies_timeout_ms: int,
        pending_max: int,
        delay_levels: int = 18,
        on_arrival: Callable[[Queues], None] = lambda queues: None,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._acks = acks
        self._clock = clock
        self._loop = loop
        self._level = level
        self._sync_flush = sync_flush
        self.waits = sync_flush or not is_immediate(level)
        """Whether a send without a level of its own has anything to wait for."""
        self.store_append = store.append
        self.set_timeouts(flush_timeout_ms, copies_timeout_ms)
        self.pending_max = pending_max
        self._delay_levels = delay_levels
        self.on_arrival = on_arrival
        self.on_turn: Callable[[], None] = lambda: None
        """Told once per turn in which something was appended, before dispatch: the copies leave first."""
        self.gate = WriteGate()
        self._is_awaited = is_awaited
        """Whether somebody wants to know at once when a queue gets messages."""
        self.is_scheduled = False
        """What an append leaves to do will be done, at the end of this turn or a little later."""
        self._ends_turn = False
        """`_end_turn` will come."""
        self._later: asyncio.Handle | None = None
        """`_look` or `_go_on` will come."""
        self._due = 0.0
        self._complains_at = 0.0
        """When what was put off is done even if more is sent."""
        self._seen = -1
        """Where the log ended when `_look` last came."""
        self._stopped = False
        """The store closes soon: nothing is put off any more."""
        self._flush_wanted = 0
        self._flush_asked = 0
        self._timer: asyncio.TimerHandle | None = None
        self._levels: dict[str, AckLevel] = {}

    def set_timeouts(self, flush_timeout_ms: int, copies_timeout_ms: int) -> None:
        """Sets one deadline per send: that of the copies when it waits for any, else that of the local flush."""
        self._flush_timeout = flush_timeout_ms / 1000
        self._copies_timeout = copies_timeout_ms / 1000

    @property
    def acks(self) -> AckQueue:
        return self._acks

    @property
    def level(self) -> AckLevel:
        """What a send waits for when neither message nor topic says more."""
        return self._level

    @level.setter
    def level(self, level: AckLevel) -> None:
        self._level = level
        self.waits = self._sync_flush or not is_immediate(level)

    def set_fence(self, fence: Fence) -> None:
        """Makes everything that is written or acknowledged ask the clock whether the lease still holds."""
        self.gate.fence = self._acks.fence = fence

    @property
    def refusal(self) -> WriteRefused | None:
        """Why nothing may be written; see `gate`, which alone changes it."""
        return self.gate.refusal

    def append(self, message: NewMessage) -> Appended:
        """Appends and does not wait. Raises WriteRefused or StoreError, and then nothing was written."""
        self.gate.check()
        appended = self.store_append(
            message.topic,
            message.queue_id,
            message.flag,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body,
            encode_properties(message.properties),
            is_copy=message.is_copy,
        )
        if not self.is_scheduled:
            self.schedule_dispatch()
        return appended

    def append_mark(self, mark: LogMark) -> Appended:
        """Appends what the log shall say about queues from here on; as `append`."""
        self.gate.check()
        appended = self._store.append_mark(mark)
        self.schedule_dispatch()
        return appended

    def put_mark(self, mark: LogMark) -> Awaitable[tuple[PutStatus, str]]:
        """Appends a mark at once. Returns what completes when it is acknowledged as a message would be."""
        appended = self.append_mark(mark)
        waiter, done = self._waiter()
        self.when_acknowledged(appended.physical_offset + appended.size, None, done)
        return waiter

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        batch: MessageBatch,
    ) -> AppendedBatch:
        """Appends several messages to one queue, contiguous; otherwise as `append`."""
        self.gate.check()
        appended = self._store.append_batch(
            topic, queue_id, sys_flag, born_timestamp, born_host, reconsume_times, batch
        )
        self.schedule_dispatch()
        return appended

    def when_acknowledged(self, end_offset: int, level: AckLevel | None, done: Done, *, wait: bool = True) -> None:
        """Calls `done` once the record that ends at `end_offset` has reached its level, or at the deadline.

        At once when there is nothing to wait for; `wait` False is the message property WAIT=false.
        """
        level = level or self._level
        fence = self.gate.fence
        if fence is not None and fence.is_closed:
            done(PutStatus.SERVICE_NOT_AVAILABLE, LEASE_OVER)
            return
        if not wait or (not self._sync_flush and is_immediate(level)):
            if fence is None or not fence.wants_copies:
                done(PutStatus.PUT_OK, "")
                return
            level = ONE_COPY if not wait else level
        local_flush = self._sync_flush or level.durable
        if local_flush and end_offset > self._flush_wanted:
            self._flush_wanted = end_offset
        timeout = self._flush_timeout if level.copies == 1 else self._copies_timeout
        now = self._clock.monotonic()
        known = self._acks.add(end_offset, level, local_flush, now + timeout, done, now)
        if known is not None:
            done(*known)
        self._hurry()
        self._arm_timer()

    def after_turn(self, callback: Callable[[], None]) -> None:
        """Takes work that can be done while the copies of what waits since this turn are on their way."""
        self._loop.call_soon(callback)

    def forget_flushes(self) -> None:
        """Forgets what was asked to be flushed: the log may have been cut since the last write."""
        self._flush_wanted = self._flush_asked = 0

    def check_room(self) -> None:
        """Refuses a send while too many wait for their acknowledgement, as upstream's full send queue does."""
        if len(self._acks) >= self.pending_max:
            raise ReplyError(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]system busy, start flow control for a while: {len(self._acks)} sends wait for acks",
            )

    def level_of(self, topic: TopicConfig | None, properties: Mapping[str, str] | None = None) -> AckLevel | None:
        """Returns the level that message or topic ask for, None for the broker's own.

        Raises ConfigError for a text that is none.
        """
        text = properties.get(ACK_COPIES) if properties else None
        if text is None and topic is not None and topic.attributes:
            text = topic.attributes.get(TOPIC_COPIES)
        return self.parsed_level(text) if text else None

    def parsed_level(self, text: str) -> AckLevel:
        level = self._levels.get(text)
        if level is None:
            level = parse_level(text)
            if len(self._levels) < 64:
                self._levels[text] = level
        return level

    async def put(self, message: NewMessage, level: AckLevel | None = None) -> PutResult:
        """Appends and waits for the acknowledgement; a message with DELAY goes to the schedule topic."""
        waiter, done = self._waiter()
        appended = self.put_soon(message, done, level)
        status, reason = await waiter
        return PutResult(status, appended, reason)

    def _waiter(self) -> tuple["asyncio.Future[tuple[PutStatus, str]]", Done]:
        """Returns a future and the callback that completes it."""
        waiter: asyncio.Future[tuple[PutStatus, str]] = self._loop.create_future()

        def done(status: PutStatus, reason: str) -> None:
            if not waiter.done():
                waiter.set_result((status, reason))

        return waiter, done

    def put_soon(self, message: NewMessage, done: Done, level: AckLevel | None = None) -> Appended:
        """Does what `put` does with a callback, which may come before this returns."""
        if (message.sys_flag & TRANSACTION_MASK) in (0, TRANSACTION_COMMIT) and delay_level(message.properties) > 0:
            message.move(to_schedule(*message.place, self._delay_levels))
        appended = self.append(message)
        end = appended.physical_offset + appended.size
        self.when_acknowledged(end, level, done, wait=message.properties.get(WAIT) != "false")
        return appended

    def schedule_dispatch(self) -> None:
        """Looks at the turn's end for what became readable (append, flush, higher confirmed offset)."""
        if self.is_scheduled:
            return
        self.is_scheduled = True
        if self.waits or len(self._acks) or self._is_awaited():
            self._hurry()
        else:
            self._put_off()

    def _hurry(self) -> None:
        """Has what was put off done at the end of this turn, because somebody waits."""
        if not self._ends_turn:
            self._ends_turn = True
            self._loop.call_soon(self._end_turn)

    def _put_off(self) -> None:
        if self._later is None and not self._stopped:
            self._due = self._clock.monotonic() + PUT_OFF_MAX
            self._seen = -1
            self._later = self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Does what was put off if nothing was sent since the last look: in between the loop looked at its sockets."""
        appended = self._store.appended
        if appended != self._seen and self._clock.monotonic() < self._due:
            self._seen = appended
            self._later = self._loop.call_soon(self._look)
        else:
            self._do_later(SLICE_SIZE)

    def _go_on(self) -> None:
        self._do_later(SLICE_SIZE)

    def catch_up(self) -> None:
        """Does what was put off, so that the queues have every message that may be read."""
        if self._later is not None:
            self._later.cancel()
            self._do_later(DISPATCH_SIZE)

    async def drained(self, timeout: float) -> None:
        """Returns when no send waits any more, at most `timeout` seconds from now."""
        deadline = self._clock.monotonic() + timeout
        while len(self._acks) and self._clock.monotonic() < deadline:  # noqa: ASYNC110  # only when the broker stops
            await asyncio.sleep(0.005)
        # Whatever was appended in this turn is still to be dispatched.
        self.catch_up()
        await asyncio.sleep(0)

    def stop(self, reason: str) -> None:
        """Ends writing; what waits fails with the reason."""
        self.gate.end(reason)
        self.fail_waiting(reason)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._stopped = True

    def fail_waiting(self, reason: str) -> None:
        """Tells every send that still waits that it can't be acknowledged, and why."""
        over: list[Complete] = []
        self._acks.fail_all(over, PutStatus.SERVICE_NOT_AVAILABLE, reason)
        self._tell(over)

    def _tell(self, over: list[Complete]) -> None:
        for complete in over:
            self._acks.tell(complete)

    def _end_turn(self) -> None:
        self._ends_turn = self.is_scheduled = False
        self.on_turn()
        if self._is_awaited():
            self._dispatch()
        else:
            self._put_off()
        self._ask_for_flush()

    def _do_later(self, size: int) -> None:
        self._later = None
        self.is_scheduled = False
        self.on_turn()
        self._dispatch(size)
        self._ask_for_flush()

    def _dispatch(self, size: int = DISPATCH_SIZE) -> None:
        store = self._store
        before = store.dispatched
        try:
            queues = store.dispatch(size)
        except StoreError as error:  # a full disk: whoever is served now is not to blame, and reads what there is
            self._try_again(error)
            return
        if queues:
            self.on_arrival(queues)
        if before < store.dispatched < store.readable_limit and self._later is None:
            self._later = self._loop.call_soon(self._go_on)  # a backlog: the rest, but others may go first

    def _try_again(self, error: StoreError) -> None:
        """Dispatches once more in a moment, also if nobody sends until then."""
        now = self._clock.monotonic()
        if now >= self._complains_at:
            self._complains_at = now + COMPLAINT_SECONDS
            log.error("readers see no newer messages, it is tried again every second: %s", error)
        if self._later is None and not self._stopped:
            self._later = self._loop.call_later(RETRY_SECONDS, self._go_on)

    def _ask_for_flush(self) -> None:
        store = self._store
        wanted = max(self._flush_wanted, store.appended) if self._sync_flush else self._flush_wanted
        if wanted > self._flush_asked:
            self._flush_asked = wanted
            store.when_flushed(wanted, self._on_flushed)

    def _on_flushed(self, error: Exception | None) -> None:
        if error is not None:
            # What the disk holds is unknown now: nothing that waits may be acknowledged, nothing more is taken.
            self.fail_waiting(f"the disk refused the flush: {error}")
            self.gate.refuse(f"the log can't be written any more: {error}")
            return
        over: list[Complete] = []
        self._acks.flushed(over, self._store.flushed)
        self._tell(over)
        # With SYNC_FLUSH readers stop at the flushed offset, so a flush makes messages readable.
        self.schedule_dispatch()

    def _arm_timer(self) -> None:
        if self._timer is None and (deadline := self._acks.next_deadline) is not None:
            delay = max(0.0, deadline - self._clock.monotonic())
            self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        over: list[Complete] = []
        self._acks.expire(over, self._clock.monotonic())
        self._tell(over)
        self._arm_timer()


def is_immediate(level: AckLevel) -> bool:
    """Returns whether the append itself is enough: one copy, in memory."""
    return level.copies == 1 and not level.durable
