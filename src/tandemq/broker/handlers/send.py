"""SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE: the hot path of the broker.

The common send (known topic, nothing special in its properties, nothing to wait for) goes straight down `send`: a
cached topic lookup, properties fixed as text, one append, a reply from a template. Everything rare leaves that road as
soon as it shows: unknown topics (`_admit`), retry topics, delays, transactions and per-message levels
(`_send_special`), batches.

Order of checks and answers: upstream's SendMessageProcessor.
"""

import logging
import random
import struct
from collections.abc import Callable

import msgspec

from tandemq.broker.groups import GroupTable
from tandemq.broker.idempotence import IDEMPOTENT, Verdict
from tandemq.broker.idempotent_sends import IdempotentSends
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.locks import QueueLocks
from tandemq.broker.members import Members
from tandemq.broker.replies import STATUS_CODES
from tandemq.broker.send_properties import POP_CK, broker_suffix, plain_key
from tandemq.broker.stats import BrokerStats, Flow
from tandemq.broker.timers import BadTimer, asks_for_timer, to_timer
from tandemq.broker.topics import NOT_ALLOWED_TO_SEND, TopicTable, TopicTableFull
from tandemq.broker.unique_ids import UniqueIds
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.codec import envelope
from tandemq.codec.batch import parse_batch
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import ONEWAY_FLAG, encode_response
from tandemq.codec.compression import decompress
from tandemq.codec.header_json import LANGUAGE, PROTOCOL_VERSION
from tandemq.codec.record import PROPERTIES_MAX, TOPIC_V1_MAX
from tandemq.codec.send_header import SendHeader
from tandemq.errors import ReplyError
from tandemq.model.message import (
    ACK_COPIES,
    CLUSTER,
    COMPRESSED,
    COMPRESSION_MASK,
    DELAY,
    MESSAGE_TYPE,
    MSG_REGION,
    MULTI_TAGS,
    REPLY_TO_CLIENT,
    TRACE_ON,
    TRANSACTION_PREPARED_FLAG,
    UNIQUE_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)
from tandemq.model.topic import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    PERM_WRITE,
    RETRY_PREFIX,
    TopicConfig,
    topic_name_problem,
)
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import SendHandler
from tandemq.replication.acks import AckLevel, PutStatus

log = logging.getLogger(__name__)

WAIT_FALSE = "WAIT\x01false"
REPLY = "reply"
"""The MSG_TYPE of an answer."""
MAX_RECONSUME_SINCE = 121
"""V3_4_9: clients from here on send a maxReconsumeTimes that counts."""

_json_text = msgspec.json.Encoder().encode

_REPLY_MIDDLE = f'"}},"flag":1,"language":"{LANGUAGE}","opaque":'
_REPLY_END = f',"version":{PROTOCOL_VERSION}}}'
_PREFIXES = [struct.pack(">II", size + 4, size) for size in range(2048)]
"""The first 8 bytes of a frame by its header's size: looking one up is cheaper than packing it."""
_KEY_LENGTH_MAX = 256
"""Of a UNIQ_KEY in a reply from the template; Java's have 32 characters."""


class _Target:
    """What a send needs to know of its topic, looked up once."""

    __slots__ = ("flow", "is_retry", "level", "multi_tags", "queue_count", "write_queues")

    def __init__(self, config: TopicConfig, level: AckLevel | None, flow: Flow) -> None:
        self.queue_count = max(config.read_queues, config.write_queues)
        self.write_queues = config.write_queues
        self.multi_tags = MULTI_TAGS if config.filter_type == "MULTI_TAG" else 0
        self.is_retry = config.name.startswith(RETRY_PREFIX)
        self.level = level
        self.flow = flow


class SendHandlers:
    """Sends of clients, into the log and back."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        members: Members,
        writer: MessageWriter,
        locks: QueueLocks,
        live: LiveConfig,
        clock: Clock,
        store_host: bytes,
        stats: BrokerStats,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._members = members
        self._writer = writer
        self._append = writer.store_append
        self._locks = locks
        self._live = live
        self._clock = clock
        self._host_text = store_host.hex().upper()
        self._ids = UniqueIds(store_host, clock.wall_ms)
        self._stats = stats
        self._targets: dict[str, _Target] = {}
        self.order_topics: frozenset[str] = frozenset()
        """Topics in the name servers' ORDER_TOPIC_CONFIG: not sent to while the broker is not writable."""
        self.timers_waiting: Callable[[], int] = lambda: 0
        """How many timer messages wait: they are held in memory, so there is a limit."""
        self.idempotence: IdempotentSends | None = None
        """Recognises repeated sends of producers that ask for it."""
        self.refresh()

    def refresh(self) -> None:
        """Topics or configuration changed: what was derived from them is derived again."""
        config = self._live.broker
        self._targets.clear()
        self._suffix = broker_suffix(config.cluster_name, config.region_id, config.trace_on)
        self._body_size_max = self._live.store.message_size_max
        self._not_before = config.start_accept_send_request_timestamp
        self._is_writable = bool(config.broker_permission & PERM_WRITE)
        self._has_conditions = not self._is_writable or self._not_before > 0
        ext = {MSG_REGION: config.region_id, TRACE_ON: "true" if config.trace_on else "false"}
        self._fixed_ext = ext
        fixed = _json_text(ext).decode()[:-1]
        self._reply_start = f'{{"code":0,"extFields":{fixed},"msgId":"{self._host_text}'

    def send_handlers(self) -> dict[int, SendHandler]:
        """By code, for the server's hot path."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch,
        }

    def forget_targets(self) -> None:
        """What was remembered of topics may be outdated (a flow was dropped for idleness)."""
        self._targets.clear()

    # the road every send takes --------------------------------------------------------------------------------------

    def send(
        self, connection: Connection, opaque: int, flag: int, send: SendHeader, body: bytes | memoryview
    ) -> bytes | None:
        """One send; the reply, or None when it comes later or never (oneway). ReplyError refuses it."""
        topic = send.topic
        target = self._targets.get(topic) or self._admit(send)
        queue_id = send.queueId
        if not 0 <= queue_id < target.queue_count:
            queue_id = self._other_queue(target, topic, queue_id)
        if self._has_conditions:
            self._check_open(topic)
        if not 0 < len(body) <= self._body_size_max:
            raise self._bad_size(len(body))
        if send.batch:
            self._send_batch(connection, opaque, flag, send, body, queue_id, target)
            return None
        text = send.properties
        key = None if target.is_retry else plain_key(text)
        if key is None:
            self._send_special(connection, opaque, flag, send, body, queue_id, target)
            return None
        if text[-1:] != "\x02" and text:
            text += "\x02"
        if not key:
            key = self._ids.next()
            text = f"{text}{UNIQUE_KEY}\x01{key}\x02"
        properties = (text + self._suffix).encode()
        if len(properties) > PROPERTIES_MAX:
            raise _bad_properties(len(properties))
        writer = self._writer
        if writer.refusal is not None:
            raise writer.refusal
        waits = writer.waits or target.level is not None
        if waits:
            writer.check_room()
        # As writer.append, without one more call for every message.
        physical_offset, stored_size, queue_offset, _ = self._append(
            topic,
            queue_id,
            send.flag,
            send.sysFlag | target.multi_tags,
            send.bornTimestamp,
            connection.peer_host_bytes,
            send.reconsumeTimes,
            0,
            body,
            properties,
        )
        if not writer.is_scheduled:
            writer.schedule_dispatch()
        flow = target.flow
        flow.messages += 1
        flow.bytes += stored_size
        if waits and WAIT_FALSE not in text:
            end = physical_offset + stored_size
            self._reply_later(connection, opaque, flag, end, physical_offset, queue_id, queue_offset, key, target.level)
            return None
        if flag & ONEWAY_FLAG:
            return None
        return self._reply(opaque, physical_offset, queue_id, queue_offset, key)

    def send_batch(
        self, connection: Connection, opaque: int, flag: int, send: SendHeader, body: bytes | memoryview
    ) -> bytes | None:
        """SEND_BATCH_MESSAGE is a batch whatever its header says."""
        send.batch = True
        return self.send(connection, opaque, flag, send, body)

    def _reply(self, opaque: int, physical_offset: int, queue_id: int, queue_offset: int, key: str) -> bytes:
        """SUCCESS, written as text around what never changes: half the cost of encoding a dictionary."""
        if not key.isalnum() or not key.isascii() or len(key) > _KEY_LENGTH_MAX:
            return self._reply_slowly(
                PutStatus.PUT_OK, "", opaque, self._message_id(physical_offset), queue_id, queue_offset, key
            )
        header = (
            f'{self._reply_start}{physical_offset:016X}","queueId":"{queue_id}","queueOffset":"{queue_offset}'
            f'","transactionId":"{key}{_REPLY_MIDDLE}{opaque}{_REPLY_END}'
        ).encode()
        return _PREFIXES[len(header)] + header

    # what leaves the road -------------------------------------------------------------------------------------------

    def _admit(self, send: SendHeader) -> _Target:
        """The target of a topic not met since the last change: checked, created if that is allowed, remembered."""
        topic = send.topic
        if (problem := topic_name_problem(topic)) is not None:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, problem)
        if topic in NOT_ALLOWED_TO_SEND:
            raise ReplyError(ResponseCode.NO_PERMISSION, f"sending to topic[{topic}] is forbidden")
        config = self._topics.get(topic) or self._create(send)
        if config is None:
            raise ReplyError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please! (its template {send.defaultTopic} does not allow it)",
            )
        target = _Target(config, self._writer.level_of(config), self._stats.put_flow(topic))
        self._targets[topic] = target
        return target

    def _create(self, send: SendHeader) -> TopicConfig | None:
        try:
            if send.topic.startswith(RETRY_PREFIX):
                return self._topics.create_internal(send.topic, 1)
            return self._topics.create_on_send(
                send.topic,
                send.defaultTopic or AUTO_CREATE_TOPIC,
                send.defaultTopicQueueNums,
                unit_mode=send.unitMode,
            )
        except TopicTableFull as error:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, str(error)) from None

    def _other_queue(self, target: _Target, topic: str, queue_id: int) -> int:
        if queue_id < 0 and target.write_queues > 0:
            return random.randrange(target.write_queues)
        raise ReplyError(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, topic[{topic}] has {target.queue_count} queues",
        )

    def _check_open(self, topic: str) -> None:
        if self._not_before > self._clock.wall_ms():
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {self._not_before}")
        if not self._is_writable and topic in self.order_topics:
            raise ReplyError(ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")

    def _send_special(
        self,
        connection: Connection,
        opaque: int,
        flag: int,
        send: SendHeader,
        body: bytes | memoryview,
        queue_id: int,
        target: _Target,
    ) -> None:
        """Sends whose properties or topic mean more than storing them: parsed, wrapped, then on as usual."""
        properties = decode_properties(send.properties.encode())
        topic, sys_flag = send.topic, send.sysFlag | target.multi_tags
        asker = properties.get(REPLY_TO_CLIENT)
        if target.is_retry:  # sent by a consumer, whoever asked
            topic, queue_id = self._retry_destination(send, queue_id, properties)
        elif asker is not None and properties.get(MESSAGE_TYPE) != REPLY:
            self._members.note_asker(asker, connection)
        properties.pop(POP_CK, None)
        key = properties.setdefault(UNIQUE_KEY, "") or self._ids.next()
        config = self._live.broker
        properties |= {
            UNIQUE_KEY: key,
            CLUSTER: config.cluster_name,
            MSG_REGION: config.region_id,
            TRACE_ON: self._fixed_ext[TRACE_ON],
        }
        level = self._writer.level_of(self._topics.get(send.topic), properties)
        judged = self.idempotence.judge(send.properties, 1) if self.idempotence is not None else None
        properties.pop(IDEMPOTENT, None)
        if judged is not None and judged[1].skip and judged[1].known is not None:
            self._repeated(connection, opaque, flag, queue_id, level, judged[1])
            return
        delay = envelope.delay_level(properties)
        is_half = properties.get(TRANSACTION_PREPARED_FLAG, "").lower() == "true"
        if is_half and not (send.reconsumeTimes > 0 and delay > 0):
            if config.reject_transaction_message:
                raise ReplyError(ResponseCode.NO_PERMISSION, "the broker takes no transaction messages")
            topic, queue_id, sys_flag, properties = envelope.to_half(topic, queue_id, sys_flag, properties)
        elif asks_for_timer(properties):
            topic, queue_id, sys_flag, properties = self._timed(topic, queue_id, sys_flag, properties)
        encoded = encode_properties(properties)
        if len(encoded) > PROPERTIES_MAX:
            raise _bad_properties(len(encoded))
        self._writer.check_room()
        outcome: list[tuple[PutStatus, str]] = []
        reply: Callable[[PutStatus, str], None] | None = None

        def done(status: PutStatus, reason: str) -> None:
            if reply is not None:
                reply(status, reason)
            else:
                outcome.append((status, reason))

        appended = self._writer.put_soon(
            topic,
            queue_id,
            body,
            properties,
            done,
            born_timestamp=send.bornTimestamp,
            born_host=connection.peer_host_bytes,
            flag=send.flag,
            sys_flag=sys_flag,
            reconsume_times=send.reconsumeTimes,
            level=level,
        )
        target.flow.add(1, appended.size)
        if judged is not None and self.idempotence is not None:
            self.idempotence.table.appended(judged[0], appended.physical_offset + appended.size)
        reply = self._replier(
            connection, opaque, flag, self._message_id(appended.physical_offset), queue_id, appended.queue_offset, key
        )
        for status, reason in outcome:
            reply(status, reason)

    def _timed(self, topic: str, queue_id: int, sys_flag: int, properties: dict[str, str]) -> envelope.Enveloped:
        """A message for an exact time goes to the timer topic, one whose time has come to its own."""
        config = self._live.broker
        if not config.timer_wheel_enable:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "timer message is not enabled, timerWheelEnable is false")
        if self.timers_waiting() >= config.timer_messages_max:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control: timerMessagesMax={config.timer_messages_max} are waiting",
            )
        try:
            timed = to_timer(
                topic, queue_id, sys_flag, properties, self._clock.wall_ms(), config.timer_max_delay_sec * 1000
            )
        except BadTimer as error:
            raise ReplyError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        return timed or envelope.Enveloped(topic, queue_id, sys_flag, properties)

    def _retry_destination(self, send: SendHeader, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        """Where a message that a consumer itself sends to %RETRY% goes: there, or to %DLQ% when it was tried enough."""
        group = send.topic[len(RETRY_PREFIX) :]
        config = self._groups.find_or_create(group)
        if config is None:
            raise ReplyError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")
        times_max = config.retry_max_times
        if send.version >= MAX_RECONSUME_SINCE and send.maxReconsumeTimes is not None:
            times_max = send.maxReconsumeTimes
        gave_up_in_order = self._locks.has_any(group, self._clock.monotonic())
        if send.reconsumeTimes <= times_max and not gave_up_in_order:
            return send.topic, queue_id
        properties[DELAY] = "-1"
        return self._topics.create_internal(DLQ_PREFIX + group, 1).name, 0

    def _send_batch(
        self,
        connection: Connection,
        opaque: int,
        flag: int,
        send: SendHeader,
        body: bytes | memoryview,
        queue_id: int,
        target: _Target,
    ) -> None:
        if len(send.topic) > TOPIC_V1_MAX:
            raise ReplyError(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(send.topic)}, at most {TOPIC_V1_MAX}"
            )
        if target.is_retry:
            raise ReplyError(ResponseCode.MESSAGE_ILLEGAL, "a batch can't be sent to a retry topic")
        sys_flag = send.sysFlag | target.multi_tags
        if sys_flag & COMPRESSED:
            # The C++ client compresses the batch as a whole; its elements are stored plain.
            body = decompress(body, sys_flag)
            sys_flag &= ~(COMPRESSED | COMPRESSION_MASK)
        batch = parse_batch(body)
        if not len(batch):
            raise ReplyError(ResponseCode.MESSAGE_ILLEGAL, "the batch has no message")
        if batch.properties_size_max > PROPERTIES_MAX:
            raise _bad_properties(batch.properties_size_max)
        wished = decode_properties(send.properties.encode())
        level = target.level
        if ACK_COPIES in wished:
            level = self._writer.level_of(self._topics.get(send.topic), wished)
        judged = self.idempotence.judge(send.properties, len(batch)) if self.idempotence is not None else None
        if judged is not None:
            batch = batch.without(judged[1].skip)
            if not len(batch):
                self._repeated(connection, opaque, flag, queue_id, level, judged[1])
                return
        self._writer.check_room()
        appended = self._writer.append_batch(
            send.topic,
            queue_id,
            sys_flag,
            send.bornTimestamp,
            connection.peer_host_bytes,
            send.reconsumeTimes,
            batch,
        )
        offsets = appended.physical_offsets
        target.flow.add(len(offsets), appended.end - offsets[0])
        if judged is not None and self.idempotence is not None:
            self.idempotence.table.appended(judged[0], appended.end)
        key = wished.get(UNIQUE_KEY) or self._ids.next()
        ids = self._message_ids(offsets)
        reply = self._replier(connection, opaque, flag, ids, queue_id, appended.queue_offset, key)
        self._writer.when_acknowledged(appended.end, level, reply, wait=wished.get(WAIT) != "false")

    def _repeated(
        self, connection: Connection, opaque: int, flag: int, queue_id: int, level: AckLevel | None, verdict: Verdict
    ) -> None:
        """Everything of this send is stored already: the answer waits for the copies of those records."""
        assert verdict.known is not None
        reply = self._replier(connection, opaque, flag, "", queue_id, -1, "")
        self._writer.when_acknowledged(verdict.known.end, level, reply)

    # answers that come later ----------------------------------------------------------------------------------------

    def _reply_later(
        self,
        connection: Connection,
        opaque: int,
        flag: int,
        end: int,
        physical_offset: int,
        queue_id: int,
        queue_offset: int,
        key: str,
        level: AckLevel | None,
    ) -> None:
        acks, ready = self._writer.acks, b""

        def get_ready() -> None:
            nonlocal ready
            ready = self._reply(opaque, physical_offset, queue_id, queue_offset, key)

        def done(status: PutStatus, reason: str) -> None:
            if flag & ONEWAY_FLAG:
                return
            if status is PutStatus.PUT_OK:
                answer = ready or self._reply(opaque, physical_offset, queue_id, queue_offset, key)
            else:
                message_id = self._message_id(physical_offset)
                answer = self._reply_slowly(status, reason, opaque, message_id, queue_id, queue_offset, key)
            if len(acks):
                connection.send(answer)
            else:
                connection.send_now(answer)

        self._writer.when_acknowledged(end, level, done)
        if acks.is_lone:
            self._writer.after_turn(get_ready)

    def _replier(
        self,
        connection: Connection,
        opaque: int,
        flag: int,
        message_id: str,
        queue_id: int,
        queue_offset: int,
        key: str,
    ) -> Callable[[PutStatus, str], None]:
        def done(status: PutStatus, reason: str) -> None:
            if not flag & ONEWAY_FLAG:
                connection.send(self._reply_slowly(status, reason, opaque, message_id, queue_id, queue_offset, key))

        return done

    def _reply_slowly(
        self,
        status: PutStatus,
        reason: str,
        opaque: int,
        message_id: str,
        queue_id: int,
        queue_offset: int,
        key: str,
    ) -> bytes:
        """The reply with whatever status; the ids are there for all that mean "stored" (C++ reads them unchecked)."""
        code = STATUS_CODES[status]
        ext = dict(self._fixed_ext)
        if code != ResponseCode.SERVICE_NOT_AVAILABLE:
            ext |= {
                "msgId": message_id,
                "queueId": str(queue_id),
                "queueOffset": str(queue_offset),
                "transactionId": key,
            }
        return encode_response(opaque, code, reason or None, ext)

    def _message_id(self, physical_offset: int) -> str:
        return f"{self._host_text}{physical_offset:016X}"

    def _message_ids(self, physical_offsets: list[int]) -> str:
        """Those of a batch, with commas between them."""
        texts = struct.pack(f">{len(physical_offsets)}Q", *physical_offsets).hex(",", 8).upper()
        return self._host_text + texts.replace(",", "," + self._host_text)

    def _bad_size(self, size: int) -> ReplyError:
        if size == 0:
            return ReplyError(ResponseCode.SYSTEM_ERROR, "the message body is empty")
        return ReplyError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message body has {size} bytes, the limit is {self._body_size_max} (maxMessageSize)",
        )


def _bad_properties(size: int) -> ReplyError:
    return ReplyError(
        ResponseCode.MESSAGE_ILLEGAL, f"the message properties have {size} bytes, the limit is {PROPERTIES_MAX}"
    )
