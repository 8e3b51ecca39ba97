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
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from tandemq.broker.idempotence import IDEMPOTENT, Known
from tandemq.broker.idempotent_sends import IdempotentSends
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.new_message import NewMessage
from tandemq.broker.replies import STATUS_CODES
from tandemq.broker.send_properties import POP_CK, broker_suffix, plain_key
from tandemq.broker.services.timers import BadTimer, asks_for_timer, to_timer
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.locks import QueueLocks
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.topics import TopicTable, TopicTableFull
from tandemq.broker.telemetry.traffic import BrokerStats, Flow
from tandemq.broker.unique_ids import UniqueIds
from tandemq.broker.writer import ONE_COPY, MessageWriter
from tandemq.clock import Clock
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import ONEWAY_FLAG, Command, encode_response
from tandemq.codec.header_json import LANGUAGE, PROTOCOL_VERSION
from tandemq.codec.send_header import SendHeader, topic_field
from tandemq.errors import ReplyError
from tandemq.formats import envelope
from tandemq.formats.batch import parse_batch
from tandemq.formats.compression import decompress
from tandemq.formats.record import FIXED_SIZE_V4, PROPERTIES_MAX, TOPIC_V1_MAX
from tandemq.model.ack_level import AckLevel
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
    TRANS_HALF_TOPIC,
    TopicConfig,
    is_internal_topic,
    topic_name_problem,
)
from tandemq.remoting.access.needs import PUB, Need, needs, topic_need
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import SendHandler
from tandemq.replication.acks import PutStatus

log = logging.getLogger(__name__)

HALF_ROOM = 128
"""Bytes of properties that a half message leaves free for what its checks and its commit add."""
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


def sent_topic(command: Command) -> list[Need]:
    """Returns what a send needs: to publish to the topic it names."""
    return [topic_need(command.ext.get(topic_field(command.code), ""), PUB)]


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


class _Send:
    """One send that is more than a plain one, with what is known of it so far."""

    __slots__ = ("body", "connection", "flag", "header", "opaque", "queue_id", "target")

    def __init__(
        self,
        connection: Connection,
        opaque: int,
        flag: int,
        header: SendHeader,
        body: bytes | memoryview,
        queue_id: int,
        target: _Target,
    ) -> None:
        self.connection = connection
        self.opaque = opaque
        self.flag = flag
        self.header = header
        self.body = body
        self.queue_id = queue_id
        self.target = target


class _Answer:
    """What the answer of a stored send says, kept until its acknowledgement is there."""

    __slots__ = ("connection", "flag", "key", "opaque", "physical_offsets", "queue_id", "queue_offset")

    def __init__(
        self,
        connection: Connection,
        opaque: int,
        flag: int,
        physical_offsets: Sequence[int],
        queue_id: int,
        queue_offset: int,
        key: str,
    ) -> None:
        self.connection = connection
        self.opaque = opaque
        self.flag = flag
        self.physical_offsets = physical_offsets
        """One for each message; none when a repeated send is answered."""
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.key = key


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
        """Derives again what depends on topics or configuration, which have changed."""
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
        """Returns the handlers by code, for the server's hot path."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch,
        }

    def forget_targets(self, topics: Iterable[str]) -> None:
        """Drops what is remembered of topics that changed."""
        for topic in topics:
            self._targets.pop(topic, None)

    # the road every send takes --------------------------------------------------------------------------------------

    @needs(sent_topic)
    def send(
        self, connection: Connection, opaque: int, flag: int, send: SendHeader, body: bytes | memoryview
    ) -> bytes | None:
        """Takes one send. Returns the reply, or None when it comes later or never (oneway).

        Raises ReplyError to refuse it.
        """
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
            self._send_batch(_Send(connection, opaque, flag, send, body, queue_id, target))
            return None
        text = send.properties
        key = None if target.is_retry else plain_key(text)
        if key is None:
            self._send_special(_Send(connection, opaque, flag, send, body, queue_id, target))
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
        gate = writer.gate
        if gate.refusal is not None or gate.fence is not None:
            gate.check()
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
            answer = _Answer(connection, opaque, flag, (physical_offset,), queue_id, queue_offset, key)
            self._reply_later(answer, physical_offset + stored_size, target.level)
            return None
        if flag & ONEWAY_FLAG:
            return None
        if gate.fence is not None:
            # One copy is enough, but another's lease may still live: the writer knows.
            answer = _Answer(connection, opaque, flag, (physical_offset,), queue_id, queue_offset, key)
            self._reply_later(answer, physical_offset + stored_size, ONE_COPY)
            return None
        return self._reply(opaque, physical_offset, queue_id, queue_offset, key)

    @needs(sent_topic)
    def send_batch(
        self, connection: Connection, opaque: int, flag: int, send: SendHeader, body: bytes | memoryview
    ) -> bytes | None:
        """Takes SEND_BATCH_MESSAGE, which is a batch whatever its header says."""
        send.batch = True
        return self.send(connection, opaque, flag, send, body)

    def _reply(self, opaque: int, physical_offset: int, queue_id: int, queue_offset: int, key: str) -> bytes:
        """Returns SUCCESS, written as text around what never changes: half the cost of encoding a dictionary."""
        if not key.isalnum() or not key.isascii() or len(key) > _KEY_LENGTH_MAX:
            return self._encode(PutStatus.PUT_OK, "", opaque, (physical_offset,), queue_id, queue_offset, key)
        header = (
            f'{self._reply_start}{physical_offset:016X}","queueId":"{queue_id}","queueOffset":"{queue_offset}'
            f'","transactionId":"{key}{_REPLY_MIDDLE}{opaque}{_REPLY_END}'
        ).encode()
        return _PREFIXES[len(header)] + header

    # what leaves the road -------------------------------------------------------------------------------------------

    def _admit(self, send: SendHeader) -> _Target:
        """Returns the target of a topic not met since the last change.

        Checks it, creates it if that is allowed, remembers it.
        """
        topic = send.topic
        if (problem := topic_name_problem(topic)) is not None:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, problem)
        if is_internal_topic(topic, self._live.broker.cluster_name):
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

    def _send_special(self, send: _Send) -> None:
        """Handles a send whose properties or topic mean more than storing it: parses, wraps, then goes on as usual."""
        header, target, queue_id = send.header, send.target, send.queue_id
        properties = decode_properties(header.properties.encode())
        topic, sys_flag = header.topic, header.sysFlag | target.multi_tags
        asker = properties.get(REPLY_TO_CLIENT)
        if target.is_retry:  # sent by a consumer, whoever asked
            topic, queue_id = self._retry_destination(header, queue_id, properties)
        elif asker is not None and properties.get(MESSAGE_TYPE) != REPLY and not send.connection.is_forwarded:
            self._members.note_asker(asker, send.connection, send.connection.account)
        properties.pop(POP_CK, None)
        key = properties.setdefault(UNIQUE_KEY, "") or self._ids.next()
        config = self._live.broker
        properties |= {
            UNIQUE_KEY: key,
            CLUSTER: config.cluster_name,
            MSG_REGION: config.region_id,
            TRACE_ON: self._fixed_ext[TRACE_ON],
        }
        level = self._writer.level_of(self._topics.get(header.topic), properties)
        checked = None
        if self.idempotence is not None:
            checked = self.idempotence.check(header.properties, send.body, header.sysFlag)
        properties.pop(IDEMPOTENT, None)
        if checked is not None and checked[1].skip and checked[1].known is not None:
            self._repeated(send, queue_id, level, checked[1].known)
            return
        place = self._place(header, envelope.Enveloped(topic, queue_id, sys_flag, properties))
        encoded_size = len(encode_properties(place.properties))
        limit = PROPERTIES_MAX - HALF_ROOM if place.topic == TRANS_HALF_TOPIC else PROPERTIES_MAX
        if encoded_size > limit:
            raise _bad_properties(encoded_size, limit)
        self._writer.check_room()
        outcome: list[tuple[PutStatus, str]] = []
        answer: _Answer | None = None

        def done(status: PutStatus, reason: str) -> None:
            if answer is not None:
                self._answer(answer, status, reason)
            else:
                outcome.append((status, reason))

        message = NewMessage(
            topic=place.topic,
            queue_id=place.queue_id,
            body=send.body,
            properties=place.properties,
            born_timestamp=header.bornTimestamp,
            born_host=send.connection.peer_host_bytes,
            flag=header.flag,
            sys_flag=place.sys_flag,
            reconsume_times=header.reconsumeTimes,
        )
        appended = self._writer.put_soon(message, done, level)
        target.flow.add(1, appended.size)
        if checked is not None and self.idempotence is not None:
            end = appended.physical_offset + appended.size
            self.idempotence.appended(checked[0], send.body, end, appended.queue_offset, self._clock.wall_ms())
        offsets = (appended.physical_offset,)
        answer = _Answer(send.connection, send.opaque, send.flag, offsets, place.queue_id, appended.queue_offset, key)
        for status, reason in outcome:
            self._answer(answer, status, reason)

    def _place(self, header: SendHeader, place: envelope.Enveloped) -> envelope.Enveloped:
        """Returns where the message goes: a half or timer message to its system topic, any other where it was sent."""
        properties = place.properties
        is_half = properties.get(TRANSACTION_PREPARED_FLAG, "").lower() == "true"
        if is_half and not (header.reconsumeTimes > 0 and envelope.delay_level(properties) > 0):
            if self._live.broker.reject_transaction_message:
                raise ReplyError(ResponseCode.NO_PERMISSION, "the broker takes no transaction messages")
            return envelope.to_half(*place)
        return self._timed(place) if asks_for_timer(properties) else place

    def _timed(self, place: envelope.Enveloped) -> envelope.Enveloped:
        """Returns the timer topic for a message with an exact time, its own topic when that time has come."""
        config = self._live.broker
        if not config.timer_wheel_enable:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "timer message is not enabled, timerWheelEnable is false")
        if self.timers_waiting() >= config.timer_messages_max:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control: timerMessagesMax={config.timer_messages_max} are waiting",
            )
        try:
            timed = to_timer(*place, self._clock.wall_ms(), config.timer_max_delay_sec * 1000)
        except BadTimer as error:
            raise ReplyError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        return timed or place

    def _retry_destination(self, send: SendHeader, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        """Returns where a message that a consumer sends to %RETRY% goes: there, or to %DLQ% after enough tries."""
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

    def _send_batch(self, send: _Send) -> None:
        """Stores the messages of a batch one after another in one queue."""
        header, target, body = send.header, send.target, send.body
        if len(header.topic) > TOPIC_V1_MAX:
            raise ReplyError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"message topic length too long {len(header.topic)}, at most {TOPIC_V1_MAX}",
            )
        if target.is_retry:
            raise ReplyError(ResponseCode.MESSAGE_ILLEGAL, "a batch can't be sent to a retry topic")
        sys_flag = header.sysFlag | target.multi_tags
        if sys_flag & COMPRESSED:
            # The C++ client compresses the batch as a whole; its elements are stored plain.
            body = decompress(body, sys_flag, size_max=self._live.store.message_size_max)
            sys_flag &= ~(COMPRESSED | COMPRESSION_MASK)
        batch = parse_batch(body, self._live.store.record_size_max // FIXED_SIZE_V4)
        if not len(batch):
            raise ReplyError(ResponseCode.MESSAGE_ILLEGAL, "the batch has no message")
        if batch.properties_size_max > PROPERTIES_MAX:
            raise _bad_properties(batch.properties_size_max)
        wished = decode_properties(header.properties.encode())
        level = target.level
        if ACK_COPIES in wished:
            level = self._writer.level_of(self._topics.get(header.topic), wished)
        checked = None
        if self.idempotence is not None:
            checked = self.idempotence.check(header.properties, body, sys_flag, batch)
        if checked is not None:
            batch = batch.without(checked[1].skip)
            if not len(batch) and checked[1].known is not None:
                self._repeated(send, send.queue_id, level, checked[1].known)
                return
        self._writer.check_room()
        appended = self._writer.append_batch(
            header.topic,
            send.queue_id,
            sys_flag,
            header.bornTimestamp,
            send.connection.peer_host_bytes,
            header.reconsumeTimes,
            batch,
        )
        offsets = appended.physical_offsets
        target.flow.add(len(offsets), appended.end - offsets[0])
        if checked is not None and self.idempotence is not None:
            last = appended.queue_offset + len(offsets) - 1
            self.idempotence.appended(checked[0], batch.last_body, appended.end, last, self._clock.wall_ms())
        key = wished.get(UNIQUE_KEY) or self._ids.next()
        answer = _Answer(send.connection, send.opaque, send.flag, offsets, send.queue_id, appended.queue_offset, key)
        self._writer.when_acknowledged(
            appended.end, level, partial(self._answer, answer), wait=wished.get(WAIT) != "false"
        )

    def _repeated(self, send: _Send, queue_id: int, level: AckLevel | None, known: Known) -> None:
        """Answers a send that is stored already, once the copies of its records are made.

        The answer has no message id, which tells the sender so, and the queue offset of the producer's last message.
        """
        answer = _Answer(send.connection, send.opaque, send.flag, (), queue_id, known.queue_offset, "")
        self._writer.when_acknowledged(known.end, level, partial(self._answer, answer))

    # answers that come later ----------------------------------------------------------------------------------------

    def _reply_later(self, answer: _Answer, end: int, level: AckLevel | None) -> None:
        """Answers a plain send when the record that ends at `end` has reached its level."""
        acks, ready = self._writer.acks, b""

        def success() -> bytes:
            return self._reply(
                answer.opaque, answer.physical_offsets[0], answer.queue_id, answer.queue_offset, answer.key
            )

        def get_ready() -> None:
            nonlocal ready
            ready = success()

        def done(status: PutStatus, reason: str) -> None:
            if status is not PutStatus.PUT_OK:
                self._answer(answer, status, reason)
            elif answer.flag & ONEWAY_FLAG:
                return
            elif len(acks):
                answer.connection.send(ready or success())
            else:
                answer.connection.send_now(ready or success())

        self._writer.when_acknowledged(end, level, done)
        if acks.is_lone:
            self._writer.after_turn(get_ready)

    def _answer(self, answer: _Answer, status: PutStatus, reason: str) -> None:
        """Sends the answer with whatever status its send has come to."""
        if not answer.flag & ONEWAY_FLAG:
            ids = answer.physical_offsets
            queue_id, queue_offset, key = answer.queue_id, answer.queue_offset, answer.key
            answer.connection.send(self._encode(status, reason, answer.opaque, ids, queue_id, queue_offset, key))

    def _encode(
        self,
        status: PutStatus,
        reason: str,
        opaque: int,
        physical_offsets: Sequence[int],
        queue_id: int,
        queue_offset: int,
        key: str,
    ) -> bytes:
        """Returns an answer; every status that means "stored" comes with the ids (C++ reads them unchecked)."""
        code = STATUS_CODES[status]
        ext = dict(self._fixed_ext)
        if code != ResponseCode.SERVICE_NOT_AVAILABLE:
            ext |= {
                "msgId": self._message_ids(physical_offsets),
                "queueId": str(queue_id),
                "queueOffset": str(queue_offset),
                "transactionId": key,
            }
        return encode_response(opaque, code, reason or None, ext)

    def _message_ids(self, physical_offsets: Sequence[int]) -> str:
        """Returns the offset ids of stored messages, with commas between them."""
        if not physical_offsets:
            return ""
        texts = struct.pack(f">{len(physical_offsets)}Q", *physical_offsets).hex(",", 8).upper()
        return self._host_text + texts.replace(",", "," + self._host_text)

    def _bad_size(self, size: int) -> ReplyError:
        if size == 0:
            return ReplyError(ResponseCode.SYSTEM_ERROR, "the message body is empty")
        return ReplyError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message body has {size} bytes, the limit is {self._body_size_max} (maxMessageSize)",
        )


def _bad_properties(size: int, limit: int = PROPERTIES_MAX) -> ReplyError:
    return ReplyError(ResponseCode.MESSAGE_ILLEGAL, f"the message properties have {size} bytes, the limit is {limit}")
