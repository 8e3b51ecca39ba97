"""Transactional messages: writes op records and asks producers about half messages that nobody decided.

A half message lies in RMQ_SYS_TRANS_HALF_TOPIC. A commit appends the real message; commit and rollback alike append an
*op* record that names the half's queue offset (`formats/envelope.py`). The internal group CID_RMQ_SYS_TRANS has an
offset on both topics: every half below the first is settled, every op below the second is used up.

    half  ─ END_TRANSACTION ─▶ decided ──────────────────────────────▶ settled
      │                           ▲
      └─ older than the timeout ─▶ appended again with one more check counted, producer asked (CHECK_TRANSACTION_STATE)
                                   after transactionCheckMax, or past the log's retention: TRANS_CHECK_MAX_TIME_TOPIC

`half_ledger.py` keeps the books, `half_check.py` has the rule. Op offsets named in one turn of the loop share one op
record; upstream gathers them for up to 3 s.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from tandemq.broker.new_message import NewMessage
from tandemq.broker.record_slices import messages_of
from tandemq.broker.services.half_check import CheckAction, CheckLimits, check_action, check_times
from tandemq.broker.services.half_ledger import HalfLedger
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import NOT_FOUND, OffsetTable
from tandemq.broker.write_gate import WriteRefused
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import ONEWAY_FLAG, Command, encode_request
from tandemq.errors import CodecError, StoreError
from tandemq.formats.envelope import (
    OP_BODY_SIZE_MAX,
    Enveloped,
    decode_op_body,
    encode_op_body,
    op_properties,
    real_destination,
)
from tandemq.formats.record import encode_record, parse_record
from tandemq.formats.service_progress import ServiceProgress
from tandemq.model.message import (
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    TRANSACTION_CHECK_TIMES,
    UNIQUE_KEY,
    StoredMessage,
    encode_properties,
    offset_message_id,
)
from tandemq.model.topic import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tandemq.remoting.connection import Connection
from tandemq.store.message_store import Appended, MessageStore

log = logging.getLogger(__name__)

QUEUE_ID = 0
"""Half and op topics have one queue, as upstream creates them."""
READ_BATCH = 256
READ_BYTES = 1024 * 1024
PROGRESS_MAX = 64
"""Rounds that wait for a flush; beyond it the oldest is forgotten, and its work repeated after a crash."""
CHECKS_PER_TURN = 64
"""Halves checked in one turn of the loop."""


class TransactionService:
    """Runs only while the broker writes."""

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
        self._ops: dict[int, None] = {}
        """Halves decided in this turn of the loop, in order"""
        self._aliases_known = False
        self._progress: deque[tuple[int, int, int]] = deque(maxlen=PROGRESS_MAX)
        """Rounds not yet saved: end of the log after it, half offset, op offset"""
        self._task: asyncio.Task[None] | None = None
        self._turn = 0
        self.may_be_asked: Callable[[Connection, str], bool] = lambda connection, topic: True
        """Whether the client on a connection may see half messages of a topic: anybody can join a producer group."""
        self.on_progress: Callable[[], None] = lambda: None
        """Told at the end of a round, before its progress counts."""
        self.asked = 0
        self.discarded = 0

    def start(self, told: ServiceProgress | None = None) -> None:
        """Goes on from what the log told; where it tells nothing, from the group's offsets, not beyond the queues."""
        if self._task is None:
            if told is not None:
                self.ledger = HalfLedger(told.half, told.op)
            else:
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
        """Writes the op record of a half that is committed or rolled back, at the end of this turn of the loop."""
        if not self._ops:
            asyncio.get_running_loop().call_soon(self._write_ops)
        self._ops[half_queue_offset] = None
        self.ledger.answered(half_queue_offset)

    def is_decided(self, half_queue_offset: int) -> bool:
        """Returns whether the half is known to be decided: a repeated END_TRANSACTION delivers nothing twice.

        Also not one about another offset of the same half: an answer and the next question often cross.
        """
        return self.ledger.is_answered(half_queue_offset)

    def resume(self, half: StoredMessage) -> None:
        """Puts a discarded half back at the end of the queue, with no check counted."""
        properties = {**half.properties, TRANSACTION_CHECK_TIMES: "0"}
        properties.pop(PREPARED_QUEUE_OFFSET, None)
        self._append_half(half, properties)

    def _saved_offset(self, topic: str) -> int:
        committed = self._offsets.query(TRANS_GROUP, topic, QUEUE_ID)
        if committed == NOT_FOUND:
            return self._store.reader.queue_range(topic, QUEUE_ID)[0]
        return min(committed, self._store.queue_end(topic, QUEUE_ID))

    def _write_ops(self) -> None:
        ops, self._ops = list(self._ops), {}
        for body in _op_bodies(ops):
            try:
                self._writer.append(
                    NewMessage(
                        topic=TRANS_OP_HALF_TOPIC,
                        queue_id=QUEUE_ID,
                        body=body,
                        properties=op_properties(),
                        born_timestamp=self._clock.wall_ms(),
                        born_host=self._store_host,
                    )
                )
            except (StoreError, WriteRefused) as error:
                # The halves stay undecided and are asked about: late, never lost.
                log.warning("the op record of %d half messages could not be written: %s", len(ops), error)
                for half in decode_op_body(body):
                    self.ledger.take_back(half)

    async def _run(self) -> None:
        try:
            # Answers may come before the first round: what was decided before the start must be known by then.
            await self._read_aliases()
            await self._read_ops()
        except (StoreError, CodecError) as error:
            log.warning("what was decided before the start is read with the first check: %s", error)
        while True:
            await asyncio.sleep(self._interval_ms() / 1000)
            try:
                await self.check()
            except (StoreError, CodecError, WriteRefused) as error:
                log.warning("the check of half messages stopped at offset %d: %s", self.ledger.half_offset, error)

    async def check(self) -> None:
        """Runs one round: settles what is decided, asks about what is too old."""
        self.save_progress()
        if not self._aliases_known:
            await self._read_aliases()
        await self._read_ops()
        ledger, limits = self.ledger, self._limits()
        stop = self._store.reader.queue_range(TRANS_HALF_TOPIC, QUEUE_ID)[1]
        try:
            while ledger.half_offset < stop and self._check_one(limits):
                await self._breathe()
        finally:
            self.on_progress()
            self._progress.append((self._store.appended, ledger.half_offset, ledger.op_offset))
            self.save_progress()

    def save_progress(self) -> None:
        """Commits the offsets of rounds whose every record is on disk.

        A half that was appended again is passed over. If the saved offset said so while a power cut took the copy,
        nobody would ever ask about that half again.
        """
        rounds = self._progress
        while rounds and rounds[0][0] <= self._store.flushed:
            _, half_offset, op_offset = rounds.popleft()
            self._offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, QUEUE_ID, half_offset)
            self._offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, QUEUE_ID, op_offset)

    async def _read_aliases(self) -> None:
        """Finds out after a restart which waiting halves were appended again, so that late answers find them."""
        offset = self.ledger.half_offset
        while True:
            found = self._store.reader.get(TRANS_HALF_TOPIC, QUEUE_ID, offset, READ_BATCH, READ_BYTES, None)
            for half in messages_of(found.slices):
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
            first, last = self._store.reader.queue_range(TRANS_OP_HALF_TOPIC, QUEUE_ID)
            if ledger.op_next < first:
                ledger.skip_ops(first)
            if ledger.op_next >= last:
                return
            found = self._store.reader.get(TRANS_OP_HALF_TOPIC, QUEUE_ID, ledger.op_next, READ_BATCH, READ_BYTES, None)
            for op in messages_of(found.slices):
                ledger.op_read(op.queue_offset, _halves_named(op))
            if not found.slices:
                if found.next_offset <= ledger.op_next:
                    return
                ledger.skip_ops(found.next_offset)
            await asyncio.sleep(0)

    def _check_one(self, limits: CheckLimits) -> bool:
        """Handles the half at the ledger's offset; returns False at the end of the round."""
        ledger, offset = self.ledger, self.ledger.half_offset
        if ledger.pass_superseded():
            return True
        if ledger.is_decided(offset):
            ledger.settle(offset)
            return True
        first, _ = self._store.reader.queue_range(TRANS_HALF_TOPIC, QUEUE_ID)
        if offset < first:
            ledger.skip_to(first)
            return True
        found = self._store.reader.get(TRANS_HALF_TOPIC, QUEUE_ID, offset, 1, 1, None)
        if not found.slices:
            ledger.skip_to(found.next_offset)
            return found.next_offset > offset
        half = parse_record(found.slices[0])
        action = check_action(half, self._clock.wall_ms(), limits)
        if action is CheckAction.LATER:
            return False
        if action is CheckAction.DISCARD:
            self._discard(half)
            ledger.discard(offset)
        else:
            self._renew(half, ask=action is CheckAction.ASK)
        return True

    def _renew(self, half: StoredMessage, *, ask: bool) -> None:
        """Appends the half again, so that those after it can be settled, and asks its producer."""
        properties = {**half.properties}
        properties.setdefault(PREPARED_QUEUE_OFFSET, str(half.queue_offset))
        if ask:
            properties[TRANSACTION_CHECK_TIMES] = str(check_times(half) + 1)
        appended = self._append_half(half, properties)
        self.ledger.renew(half.queue_offset, appended.queue_offset)
        if ask:
            self._ask(half, properties, appended)

    def _append_half(self, half: StoredMessage, properties: dict[str, str]) -> Appended:
        return self._writer.append(_copy(half, TRANS_HALF_TOPIC, properties))

    def _ask(self, half: StoredMessage, properties: dict[str, str], appended: Appended) -> None:
        group = half.properties.get(PRODUCER_GROUP, "")
        topic, _ = real_destination(half.properties)
        producers = [
            m.connection
            for m in self._members.producers(group)
            if m.connection.is_writable and self.may_be_asked(m.connection, topic)
        ]
        if not producers:
            log.info("no producer of group %r is here to ask about half message %s", group, half.message_id)
            return
        connection = producers[self.asked % len(producers)]  # each in its turn
        connection.send(encode_request(self._check_request(half, properties, appended)))
        self.asked += 1

    def _check_request(self, half: StoredMessage, properties: dict[str, str], appended: Appended) -> Command:
        """Returns CHECK_TRANSACTION_STATE: the half as a record of its real topic, with the offsets to answer with."""
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
        self._writer.append(_copy(half, TRANS_CHECK_MAX_TIME_TOPIC, dict(half.properties)))
        self.discarded += 1
        log.warning(
            "half message %s of group %r was asked about %d times and is now in %s",
            half.message_id,
            half.properties.get(PRODUCER_GROUP),
            check_times(half),
            TRANS_CHECK_MAX_TIME_TOPIC,
        )


def _copy(half: StoredMessage, topic: str, properties: dict[str, str]) -> NewMessage:
    copied = NewMessage.copy_of(half, Enveloped(topic, QUEUE_ID, half.sys_flag, properties))
    copied.prepared_transaction_offset = 0
    return copied


def _halves_named(op: StoredMessage) -> Sequence[int]:
    try:
        return decode_op_body(op.body)
    except CodecError as error:
        log.error("op record at queue offset %d is skipped: %s", op.queue_offset, error)
        return ()


def _op_bodies(halves: list[int]) -> Iterable[bytes]:
    """Yields bodies of at most OP_BODY_SIZE_MAX bytes."""
    per_record = OP_BODY_SIZE_MAX // 20
    for start in range(0, len(halves), per_record):
        yield encode_op_body(halves[start : start + per_record])
