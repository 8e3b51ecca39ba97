"""END_TRANSACTION: the producer's word about a half message (upstream's EndTransactionProcessor); second chances."""

from collections.abc import Callable

from tandemq.broker.live_config import LiveConfig
from tandemq.broker.new_message import NewMessage
from tandemq.broker.replies import bool_field, int_field, text_field
from tandemq.broker.services.half_check import immunity_ms
from tandemq.broker.services.timers import BadTimer, asks_for_timer, to_timer
from tandemq.broker.services.transactions import TransactionService
from tandemq.broker.telemetry.traffic import BrokerStats
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import CodecError, OffsetOutOfRange, ReplyError
from tandemq.formats.envelope import Enveloped, from_half, real_destination
from tandemq.model.message import (
    PRODUCER_GROUP,
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    StoredMessage,
    parse_offset_message_id,
)
from tandemq.model.topic import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, topic_name_problem
from tandemq.remoting.access.needs import PUB, UPDATE, needs, on_cluster, on_topic, require, topic_need
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.replication.acks import PutStatus
from tandemq.store.message_store import MessageStore


class TransactionHandlers:
    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        writer: MessageWriter,
        service: TransactionService,
        stats: BrokerStats,
        clock: Clock,
        *,
        is_slave: Callable[[], bool],
    ) -> None:
        self._live = live
        self._is_slave = is_slave
        self._store = store
        self._writer = writer
        self._service = service
        self._stats = stats
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    @needs(on_topic("topic", PUB, if_given=True))
    def end(self, connection: Connection, command: Command) -> bytes | None:
        """Commits or rolls back; does not answer a third decision ("unknown"), as upstream does."""
        ext = command.ext
        if self._is_slave():
            return encode_response(command.opaque, ResponseCode.SLAVE_NOT_AVAILABLE)
        decision = int_field(ext, "commitOrRollback")
        if decision not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        half = self._half(int_field(ext, "commitLogOffset"))
        require(command, topic_need(real_destination(half.properties)[0], PUB))
        if not bool_field(ext, "fromTransactionCheck") and self._is_too_late(half):
            return encode_response(command.opaque, ResponseCode.ILLEGAL_OPERATION)
        if half.properties.get(PRODUCER_GROUP) != text_field(ext, "producerGroup"):
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != int_field(ext, "tranStateTableOffset"):
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if self._service.is_decided(half.queue_offset):
            return encode_response(command.opaque, ResponseCode.SUCCESS)
        if decision == TRANSACTION_COMMIT:
            self._commit(half)
        self._service.decide(half.queue_offset)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    @needs(on_cluster(UPDATE))
    def resume(self, connection: Connection, command: Command) -> bytes:
        """Asks about a half again that was given up, as if it were new (mqadmin resumeCheckHalfMessage)."""
        message_id = text_field(command.ext, "msgId")
        try:
            half = self._store.reader.read(parse_offset_message_id(message_id)[1])
        except (ValueError, OffsetOutOfRange, CodecError) as error:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"no message {message_id[:60]!r}: {error}") from None
        if half.topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR, f"{message_id} is in {half.topic}, not in {TRANS_CHECK_MAX_TIME_TOPIC}"
            )
        self._service.resume(half)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    def _half(self, offset: int) -> StoredMessage:
        try:
            # Up to the end of the log: the producer may answer before slow copies let readers see the half.
            half = self._store.reader.read(offset, self._store.appended)
        except (OffsetOutOfRange, CodecError):
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed") from None
        if half.topic != TRANS_HALF_TOPIC:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        return half

    def _is_too_late(self, half: StoredMessage) -> bool:
        """Returns whether the time that the producer named for its answer has passed.

        Only an answer to a check counts then.
        """
        immunity = immunity_ms(half, self._live.broker.transaction_timeout_ms)
        return immunity is not None and self._clock.wall_ms() - half.born_timestamp > immunity

    def _commit(self, half: StoredMessage) -> None:
        committed = from_half(half.sys_flag, half.properties)
        if (problem := topic_name_problem(committed.topic)) is not None:
            raise ReplyError(ResponseCode.MESSAGE_ILLEGAL, problem)
        message = NewMessage.copy_of(half, self._timed(committed))
        message.prepared_transaction_offset = half.physical_offset
        topic = message.topic
        # Nobody waits for these copies: the producer had an answer for the half, and END_TRANSACTION is oneway.
        appended = self._writer.put_soon(message, _ignore)
        self._stats.put_flow(topic).add(1, appended.size)

    def _timed(self, committed: Enveloped) -> Enveloped:
        """Returns a transactional message with its own delivery time; one whose time can't be met is delivered now."""
        config = self._live.broker
        if not config.timer_wheel_enable or not asks_for_timer(committed.properties):
            return committed
        delay_max_ms = config.timer_max_delay_sec * 1000
        try:
            return to_timer(*committed, self._clock.wall_ms(), delay_max_ms) or committed
        except BadTimer:
            return committed


def _ignore(status: PutStatus, reason: str) -> None:
    pass
