"""Transactional messages: which half messages are decided, which must be asked about, and the service that asks.

A half message lies in RMQ_SYS_TRANS_HALF_TOPIC; a commit appends the real message, and commit and rollback alike append
an *op* record that names the half's queue offset (codec.envelope). The internal group CID_RMQ_SYS_TRANS has an offset
on both topics: every half below the first is settled, every op below the second is used up.

    half  ─ END_TRANSACTION ─▶ decided ──────────────────────────────▶ settled
      │                           ▲
      └─ older than the timeout ─▶ appended again with one more check counted, producer asked (CHECK_TRANSACTION_STATE)
                                   after transactionCheckMax, or past the log's retention: TRANS_CHECK_MAX_TIME_TOPIC

`HalfLedger` is that bookkeeping, `verdict` the rule, both pure. It differs from upstream in two points: a half that was
appended again is known under all its offsets, so a late answer about the first one settles the last one and nothing is
delivered twice; and op offsets named in one turn of the loop share one op record (upstream waits up to 3 s).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from tandemq.broker import records
from tandemq.broker.members import Members
from tandemq.broker.offsets import NOT_FOUND, OffsetTable
from tandemq.broker.writer import MessageWriter, WriteRefused
from tandemq.clock import Clock
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import ONEWAY_FLAG, Command, encode_request
from tandemq.codec.envelope import OP_BODY_SIZE_MAX, decode_op_body, encode_op_body, op_properties, real_destination
from tandemq.codec.record import encode_record, parse_record
from tandemq.errors import CodecError, StoreError
from tandemq.model.message import (
    CHECK_IMMUNITY_SECONDS,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    TRANSACTION_CHECK_TIMES,
    UNIQUE_KEY,
    StoredMessage,
    encode_properties,
    offset_message_id,
)
from tandemq.model.topic import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tandemq.store.message_store import Appended, MessageStore

log = logging.getLogger(__name__)

QUEUE_ID = 0
"""Half and op topics have one queue, as upstream creates them."""
READ_BATCH = 256
READ_BYTES = 1024 * 1024
PROGRESS_MAX = 64
"""Rounds that wait for a flush; beyond it the oldest is forgotten, its work is just repeated after a crash."""
CHECKS_PER_TURN = 64
"""Halves looked at before the loop gets its turn again."""


class Verdict(Enum):
    """What a check round does with an undecided half."""

    DISCARD = "asked often enough, or older than the log keeps anything"
    LATER = "too young: this one and all behind it wait for the next round"
    KEEP = "the producer asked for more time: append it again without asking"
    ASK = "append it again and ask a producer of its group"


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """When halves are asked about (BrokerConfig's transaction options)."""

    timeout_ms: int
    check_max: int
    retention_ms: int


def verdict(half: StoredMessage, now_ms: int, limits: CheckLimits) -> Verdict:
    """Upstream's order of rules (TransactionalMessageServiceImpl.check)."""
    age = now_ms - half.born_timestamp
    if check_times(half) >= limits.check_max or age > limits.retention_ms:
        return Verdict.DISCARD
    if half.store_timestamp >= now_ms:
        return Verdict.LATER
    immunity = immunity_ms(half, limits.timeout_ms)
    if immunity is not None:
        return Verdict.KEEP if age <= immunity else Verdict.ASK
    # A birth in the future is a wrong clock at the producer: ask, its age will never come.
    return Verdict.LATER if 0 <= age <= limits.timeout_ms else Verdict.ASK


def check_times(half: StoredMessage) -> int:
    text = half.properties.get(TRANSACTION_CHECK_TIMES, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def immunity_ms(half: StoredMessage, default_ms: int) -> int | None:
    """How long the producer wants to be left alone, None if it didn't say; an unreadable value is the default."""
    text = half.properties.get(CHECK_IMMUNITY_SECONDS)
    if not text:
        return None
    return int(text) * 1000 if text.isdecimal() and len(text) < 10 else default_ms


class HalfLedger:
    """Which halves are decided. Offsets are queue offsets; 0 <= settled offsets only move forward."""

    def __init__(self, half_offset: int = 0, op_offset: int = 0) -> None:
        self.half_offset = half_offset
        """Every half below is settled: decided, appended again or discarded."""
        self.op_offset = op_offset
        """Every op record below names only settled halves."""
        self.op_next = op_offset
        """The next op record to read."""
        self._decided: dict[int, int] = {}
        """half -> op record that names it, for halves not settled yet"""
        self._open: dict[int, set[int]] = {}
        """op record -> its halves that are not settled yet"""
        self._renewed: dict[int, int] = {}
        """half -> the offset under which it was appended again"""
        self._before: dict[int, int] = {}
        """The same, backwards."""

    def __len__(self) -> int:
        return len(self._decided)

    def newest(self, half: int) -> int:
        """The offset under which this half lies now."""
        while (renewed := self._renewed.get(half)) is not None:
            half = renewed
        return half

    def is_decided(self, half: int) -> bool:
        """Whether an op record read so far names it, under any of its offsets."""
        return self.newest(half) in self._decided

    def op_read(self, op_offset: int, halves: Iterable[int]) -> None:
        """The op record at `op_offset` decides these; call in order of op offsets."""
        self.op_next = op_offset + 1
        waiting = set()
        for half in map(self.newest, halves):
            if half >= self.half_offset and half not in self._decided:
                self._decided[half] = op_offset
                waiting.add(half)
        if waiting:
            self._open[op_offset] = waiting
        self._advance_ops()

    def skip_ops(self, op_offset: int) -> None:
        """Op records below are gone from the log."""
        self.op_next = max(self.op_next, op_offset)
        self._advance_ops()

    def settle(self, half: int) -> None:
        """The half at `half_offset` is done with."""
        self.half_offset = half + 1
        op = self._decided.pop(half, None)
        if op is not None:
            waiting = self._open[op]
            waiting.discard(half)
            if not waiting:
                del self._open[op]
                self._advance_ops()
        self._forget_before(half)

    def renew(self, half: int, renewed: int) -> None:
        """The half at `half_offset` was appended again: it goes on under another offset."""
        self.half_offset = half + 1
        self._link(half, renewed)

    def seen_renewed(self, origin: int, half: int) -> None:
        """Found in the queue after a restart: `half` is what became of `origin`; call in order of offsets."""
        newest = self.newest(origin)
        if newest < half:
            self._link(newest, half)

    def pass_superseded(self) -> bool:
        """Steps over the half at `half_offset` if a newer copy of it lies further on."""
        if self.half_offset not in self._renewed:
            return False
        self.half_offset += 1
        return True

    def skip_to(self, half: int) -> None:
        """Halves below are gone from the log."""
        for gone in [offset for offset in self._decided if offset < half]:
            self.settle(gone)
        self.half_offset = max(self.half_offset, half)

    def _advance_ops(self) -> None:
        self.op_offset = min(self._open, default=self.op_next)

    def _link(self, half: int, renewed: int) -> None:
        self._renewed[half] = renewed
        self._before[renewed] = half

    def _forget_before(self, half: int) -> None:
        """A settled half's earlier offsets need no memory any more."""
        while (before := self._before.pop(half, None)) is not None:
            del self._renewed[before]
            half = before


class TransactionService:
    """Writes op records, asks producers about old halves. Runs only while the broker writes."""

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        offsets: OffsetTable,
        members: Members,
        clock: Clock,
        *,
        limits: Callable[[], CheckLimits],
        interval_ms: Callable[[], int],
        store_host: bytes,
        broker_name: str,
        ensure_topic: Callable[[str], object],
    ) -> None:
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._members = members
        self._clock = clock
        self._limits = limits
        """Read at every round: the options are tunable."""
        self._interval_ms = interval_ms
        self._store_host = store_host
        self._broker_name = broker_name
        self._ensure_topic = ensure_topic
        """Creates TRANS_CHECK_MAX_TIME_TOPIC when the first half is discarded, as upstream does."""
        self.ledger = HalfLedger()
        self._ops: list[int] = []
        self._aliases_known = False
        self._progress: deque[tuple[int, int, int]] = deque(maxlen=PROGRESS_MAX)
        """Rounds not yet saved: end of the log after it, half offset, op offset"""
        self._task: asyncio.Task[None] | None = None
        self._turn = 0
        self.asked = 0
        self.discarded = 0

    def start(self) -> None:
        if self._task is None:
            self.ledger = HalfLedger(
                self._saved_offset(TRANS_HALF_TOPIC),
                self._saved_offset(TRANS_OP_HALF_TOPIC),
            )
            self._progress.clear()
            self._aliases_known = False
            self._task = asyncio.get_running_loop().create_task(self._run(), name="transaction checks")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._write_ops()
        self.save_progress()

    def decide(self, half_queue_offset: int) -> None:
        """The half is committed or rolled back: its op record is written at the end of this turn of the loop."""
        if not self._ops:
            asyncio.get_running_loop().call_soon(self._write_ops)
        self._ops.append(half_queue_offset)

    def is_decided(self, half_queue_offset: int) -> bool:
        """Known to be decided already, so that a repeated END_TRANSACTION delivers nothing twice."""
        return half_queue_offset in self._ops or self.ledger.is_decided(half_queue_offset)

    def resume(self, half: StoredMessage) -> None:
        """Puts a discarded half back at the end of the queue, with no check counted."""
        properties = {**half.properties, TRANSACTION_CHECK_TIMES: "0"}
        properties.pop(PREPARED_QUEUE_OFFSET, None)
        self._append_half(half, properties)

    def _saved_offset(self, topic: str) -> int:
        committed = self._offsets.query(TRANS_GROUP, topic, QUEUE_ID)
        return self._store.queue_range(topic, QUEUE_ID)[0] if committed == NOT_FOUND else committed

    def _write_ops(self) -> None:
        ops, self._ops = self._ops, []
        for body in _op_bodies(ops):
            try:
                self._writer.append(
                    TRANS_OP_HALF_TOPIC,
                    QUEUE_ID,
                    0,
                    0,
                    self._clock.wall_ms(),
                    self._store_host,
                    0,
                    0,
                    body,
                    encode_properties(op_properties()),
                )
            except (StoreError, WriteRefused) as error:
                # The halves stay undecided and are asked about: late, never lost.
                log.warning("the op record of %d half messages could not be written: %s", len(ops), error)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms() / 1000)
            try:
                await self.check()
            except (StoreError, CodecError, WriteRefused) as error:
                log.warning("the check of half messages stopped at offset %d: %s", self.ledger.half_offset, error)

    async def check(self) -> None:
        """One round: settles what is decided, asks about what is too old."""
        self.save_progress()
        if not self._aliases_known:
            await self._read_aliases()
        await self._read_ops()
        ledger, limits = self.ledger, self._limits()
        stop = self._store.queue_range(TRANS_HALF_TOPIC, QUEUE_ID)[1]
        try:
            while ledger.half_offset < stop and self._check_one(limits):
                await self._breathe()
        finally:
            self._progress.append((self._store.appended, ledger.half_offset, ledger.op_offset))
            self.save_progress()

    def save_progress(self) -> None:
        """Commits the offsets of rounds whose every record is on disk.

        A half that was appended again is passed over: if the saved offset said so while a power cut took the copy,
        nobody would ever ask about it again.
        """
        rounds = self._progress
        while rounds and rounds[0][0] <= self._store.flushed:
            _, half_offset, op_offset = rounds.popleft()
            self._offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, QUEUE_ID, half_offset)
            self._offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, QUEUE_ID, op_offset)

    async def _read_aliases(self) -> None:
        """After a restart: which waiting halves were appended again, so that late answers find them."""
        offset = self.ledger.half_offset
        while True:
            found = self._store.get(TRANS_HALF_TOPIC, QUEUE_ID, offset, READ_BATCH, READ_BYTES, None)
            for half in records.messages(found.slices):
                origin = half.properties.get(PREPARED_QUEUE_OFFSET, "")
                if origin.isdecimal():
                    self.ledger.seen_renewed(int(origin), half.queue_offset)
            if found.next_offset <= offset:
                break
            offset = found.next_offset
            await asyncio.sleep(0)
        self._aliases_known = True

    async def _breathe(self) -> None:
        self._turn += 1
        if self._turn % CHECKS_PER_TURN == 0:
            await asyncio.sleep(0)

    async def _read_ops(self) -> None:
        ledger = self.ledger
        while True:
            first, last = self._store.queue_range(TRANS_OP_HALF_TOPIC, QUEUE_ID)
            if ledger.op_next < first:
                ledger.skip_ops(first)
            if ledger.op_next >= last:
                return
            found = self._store.get(TRANS_OP_HALF_TOPIC, QUEUE_ID, ledger.op_next, READ_BATCH, READ_BYTES, None)
            for op in records.messages(found.slices):
                ledger.op_read(op.queue_offset, _halves_named(op))
            if not found.slices:
                if found.next_offset <= ledger.op_next:
                    return
                ledger.skip_ops(found.next_offset)
            await asyncio.sleep(0)

    def _check_one(self, limits: CheckLimits) -> bool:
        """Handles the half at the ledger's offset; False ends the round."""
        ledger, offset = self.ledger, self.ledger.half_offset
        if ledger.pass_superseded():
            return True
        if ledger.is_decided(offset):
            ledger.settle(offset)
            return True
        first, _ = self._store.queue_range(TRANS_HALF_TOPIC, QUEUE_ID)
        if offset < first:
            ledger.skip_to(first)
            return True
        found = self._store.get(TRANS_HALF_TOPIC, QUEUE_ID, offset, 1, 1, None)
        if not found.slices:
            ledger.skip_to(found.next_offset)
            return found.next_offset > offset
        half = parse_record(found.slices[0])
        decision = verdict(half, self._clock.wall_ms(), limits)
        if decision is Verdict.LATER:
            return False
        if decision is Verdict.DISCARD:
            self._discard(half)
            ledger.settle(offset)
        else:
            self._renew(half, ask=decision is Verdict.ASK)
        return True

    def _renew(self, half: StoredMessage, *, ask: bool) -> None:
        """Appends the half again, so that the queue behind it can be settled, and asks its producer."""
        properties = {**half.properties}
        properties.setdefault(PREPARED_QUEUE_OFFSET, str(half.queue_offset))
        if ask:
            properties[TRANSACTION_CHECK_TIMES] = str(check_times(half) + 1)
        appended = self._append_half(half, properties)
        self.ledger.renew(half.queue_offset, appended.queue_offset)
        if ask:
            self._ask(half, properties, appended)

    def _append_half(self, half: StoredMessage, properties: dict[str, str]) -> Appended:
        return self._writer.append(
            TRANS_HALF_TOPIC,
            QUEUE_ID,
            half.flag,
            half.sys_flag,
            half.born_timestamp,
            half.born_host,
            half.reconsume_times,
            0,
            half.body,
            encode_properties(properties),
        )

    def _ask(self, half: StoredMessage, properties: dict[str, str], appended: Appended) -> None:
        group = half.properties.get(PRODUCER_GROUP, "")
        producers = [m for m in self._members.producers(group) if m.connection.is_writable]
        if not producers:
            log.info("no producer of group %r is here to ask about half message %s", group, half.message_id)
            return
        self._turn += 1
        connection = producers[self._turn % len(producers)].connection
        connection.send(encode_request(self._check_request(half, properties, appended)))
        self.asked += 1

    def _check_request(self, half: StoredMessage, properties: dict[str, str], appended: Appended) -> Command:
        """CHECK_TRANSACTION_STATE: the half as a record of its real topic, with the offsets to answer with."""
        topic, queue_id = real_destination(half.properties)
        record = encode_record(
            topic=topic,
            queue_id=queue_id,
            flag=half.flag,
            queue_offset=appended.queue_offset,
            physical_offset=appended.physical_offset,
            sys_flag=half.sys_flag,
            born_timestamp=half.born_timestamp,
            born_host=half.born_host,
            store_timestamp=appended.store_timestamp,
            store_host=self._store_host,
            reconsume_times=half.reconsume_times,
            body=half.body,
            properties=encode_properties(properties),
        )
        unique = half.properties.get(UNIQUE_KEY, "")
        offset_id = offset_message_id(self._store_host, appended.physical_offset)
        ext = {
            "topic": topic,
            "tranStateTableOffset": str(appended.queue_offset),
            "commitLogOffset": str(appended.physical_offset),
            "msgId": unique or offset_id,
            "transactionId": unique,
            "offsetMsgId": offset_id,
            "bname": self._broker_name,
        }
        return Command(RequestCode.CHECK_TRANSACTION_STATE, ext, record, flag=ONEWAY_FLAG)

    def _discard(self, half: StoredMessage) -> None:
        self._ensure_topic(TRANS_CHECK_MAX_TIME_TOPIC)
        self._writer.append(
            TRANS_CHECK_MAX_TIME_TOPIC,
            QUEUE_ID,
            half.flag,
            half.sys_flag,
            half.born_timestamp,
            half.born_host,
            half.reconsume_times,
            0,
            half.body,
            encode_properties(half.properties),
        )
        self.discarded += 1
        log.warning(
            "half message %s of group %r was asked about %d times and is now in %s",
            half.message_id,
            half.properties.get(PRODUCER_GROUP),
            check_times(half),
            TRANS_CHECK_MAX_TIME_TOPIC,
        )


def _halves_named(op: StoredMessage) -> Sequence[int]:
    try:
        return decode_op_body(op.body)
    except CodecError as error:
        log.error("op record at queue offset %d is skipped: %s", op.queue_offset, error)
        return ()


def _op_bodies(halves: list[int]) -> Iterable[bytes]:
    """Bodies of at most OP_BODY_SIZE_MAX bytes."""
    per_record = OP_BODY_SIZE_MAX // 20
    for start in range(0, len(halves), per_record):
        yield encode_op_body(halves[start : start + per_record])
