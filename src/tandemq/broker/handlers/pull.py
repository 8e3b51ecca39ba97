"""PULL_MESSAGE and LITE_PULL_MESSAGE: checks, read, answer; or park until a message comes or the client's time is up.

    request ─▶ checks ─▶ reader.get ─▶ FOUND ───────────▶ records, straight from the mapped log
                 │           └──────▶ nothing new, may wait ─▶ parked ─ arrival ─▶ read again ─▶ …
                 └▶ refused: at once; to C++ clients after a second, because they pull again at once   └ deadline ─▶ 19

Unlike upstream a pull is never refused because its subscription is newer than the one known from heartbeats
(SUBSCRIPTION_NOT_LATEST, up to 30 s of silence): tag filters are then left to the client, which compares tags itself.
"""

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Awaitable

from tandemq.broker.config import BrokerRole
from tandemq.broker.filters import EVERYTHING, MessageFilter, message_filter, takes_long
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.long_polling import ParkedPull, ParkedPulls, Queue
from tandemq.broker.record_slices import split_records
from tandemq.broker.replies import int_field, reply_of, text_field
from tandemq.broker.subscriptions import BadExpression, Subscription, parse_subscription
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.broker.telemetry.traffic import BrokerStats
from tandemq.broker.warm_log import WarmLog
from tandemq.clock import Clock
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import ONEWAY_FLAG, Command, encode_response, response_head
from tandemq.errors import MalformedBody, ReplyError
from tandemq.model.topic import PERM_READ, SubscriptionGroupConfig, TopicConfig
from tandemq.remoting.access.needs import SUB, needs, on_group, on_topic
from tandemq.remoting.beside import Beside
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.store.message_store import GetResult, GetStatus, MessageStore

log = logging.getLogger(__name__)

FLAG_COMMIT_OFFSET = 1
FLAG_SUSPEND = 2
FLAG_SUBSCRIPTION = 4
"""sysFlag bits of a pull (PullSysFlag)."""

SUGGEST_MASTER = 0
PULL_COUNT_ASKED_MAX = 100_000
"""Messages of one answer to a client that sends maxMsgBytes; the bytes are the real limit."""

SQL_WORK_MAX = 50_000
"""Characters of SQL92 that one pull may have evaluated: some 10 ms of the loop's time. Clients pull on from there."""
SQL_WORK_PER_MESSAGE = 20
"""Characters that reading the properties of a message counts as."""
SQL_BYTES_MAX = 256 * 1024
"""Bytes of messages whose properties one pull reads: a property may have four."""
WOKEN_SLICE_S = 0.01
"""How long parked pulls are run before others get their turn; thousands may wait for one queue."""

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
}
_BEYOND = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.OFFSET_OVERFLOW_BADLY)
"""An offset above the end of what is shown of a queue."""


def sql_count_max(expression: str) -> int:
    """Returns how many messages one pull compares with an expression."""
    return max(8, SQL_WORK_MAX // (SQL_WORK_PER_MESSAGE + len(expression)))


class _Pull:
    """One request that passed its checks."""

    __slots__ = (
        "asked",
        "bytes_max",
        "connection",
        "count_max",
        "filter",
        "group",
        "is_oneway",
        "offset",
        "opaque",
        "queue_id",
        "topic",
    )

    def __init__(
        self,
        connection: Connection,
        command: Command,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        wanted: MessageFilter,
    ) -> None:
        ext = command.ext
        self.connection = connection
        self.opaque = command.opaque
        self.is_oneway = bool(command.flag & ONEWAY_FLAG)
        self.topic = topic
        self.group = group
        self.filter = wanted
        self.queue_id = int_field(ext, "queueId")
        self.asked = self.offset = int_field(ext, "queueOffset")
        self.count_max = int_field(ext, "maxMsgNums")
        self.bytes_max = int_field(ext, "maxMsgBytes", 0)


class PullHandlers:
    """Pulls of clients, and the parked ones."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        members: Members,
        live: LiveConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        stats: BrokerStats,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._live = live
        self._clock = clock
        self._loop = loop
        self._stats = stats
        self.role = live.broker.role
        """The current role: promotion and demotion change it."""
        self.parked: ParkedPulls[_Pull] = ParkedPulls(live.broker.pull_parked_max)
        self._woken: deque[ParkedPull[_Pull]] = deque()
        """Pulls that got messages and are still to be run."""
        self._waking: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._beside = Beside()
        self.warm_log = WarmLog(store, loop, lambda: self.memory_window)

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    @property
    def memory_window(self) -> int:
        """Bytes at the end of the log that count as being in memory."""
        return self._ram * self._live.broker.access_message_in_memory_max_ratio // 100

    # requests -------------------------------------------------------------------------------------------------------

    @needs(on_topic("topic", SUB), on_group("consumerGroup", SUB))
    def pull(self, connection: Connection, command: Command) -> bytes | Awaitable[bytes | None] | None:
        if takes_long(command.ext.get("subscription"), command.ext.get("expressionType")):
            return self._pull_compiled(connection, command)
        return self._pull(connection, command)

    async def _pull_compiled(self, connection: Connection, command: Command) -> bytes | None:
        """Compiles the filter beside the loop first; the pull finds it then, unless it has no use for it."""
        ext = command.ext
        with contextlib.suppress(BadExpression, ReplyError, MalformedBody):  # the pull says in order what is wrong
            wanted = parse_subscription(ext.get("topic", ""), ext["subscription"], ext["expressionType"], 0)
            await self._beside(message_filter, wanted, property_filter=True)
        return self._pull(connection, command) if connection.is_open else None

    def _pull(self, connection: Connection, command: Command) -> bytes | None:
        try:
            pull = self._checked(connection, command)
        except (ReplyError, MalformedBody) as error:
            return self._refuse(connection, command, ReplyError(*reply_of(error)))
        ext = command.ext
        sys_flag = int_field(ext, "sysFlag", 0)
        topic, group = pull.topic.name, pull.group.name
        reset = self._offsets.take_reset(group, topic, pull.queue_id)
        if reset is None and sys_flag & FLAG_COMMIT_OFFSET and self.role is not BrokerRole.SLAVE:
            self._offsets.commit(group, topic, pull.queue_id, int_field(ext, "commitOffset", -1))
        if reset is not None:
            self._answer_reset(pull, reset)
            return None
        suspend = sys_flag & FLAG_SUSPEND
        hold_ms = self._hold_ms(ext) if suspend else 0
        self._run(pull, self._clock.monotonic() + hold_ms / 1000 if hold_ms else 0.0)
        return None

    def _hold_ms(self, ext: dict[str, str]) -> int:
        config = self._live.broker
        if not config.long_polling_enable:
            return config.short_polling_time_ms
        return max(0, min(int_field(ext, "suspendTimeoutMillis", 0), config.pull_suspend_max_ms))

    def _checked(self, connection: Connection, command: Command) -> _Pull:
        """Makes the checks in upstream's order; raises ReplyError for the first that fails."""
        config, ext = self._live.broker, command.ext
        group_name, topic_name = text_field(ext, "consumerGroup"), text_field(ext, "topic")
        if not config.broker_permission & PERM_READ:
            raise ReplyError(ResponseCode.NO_PERMISSION, "the broker pulling message is forbidden (brokerPermission)")
        if command.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise ReplyError(ResponseCode.NO_PERMISSION, "lite pull is forbidden (litePullMessageEnable=false)")
        group = self._groups.find_or_create(group_name)
        if group is None:
            raise ReplyError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group_name[:120]}] does not exist"
            )
        if not group.consume_enable:
            raise ReplyError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
        topic = self._topics.get(topic_name)
        if topic is None:
            raise ReplyError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic_name[:120]}] not exist, apply first please!")
        if not topic.perm & PERM_READ:
            raise ReplyError(ResponseCode.NO_PERMISSION, f"the topic[{topic_name}] pulling message is forbidden")
        pull = _Pull(connection, command, topic, group, self._filter(group, topic, ext))
        if not 0 <= pull.queue_id < topic.read_queues:
            raise ReplyError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{pull.queue_id}] is illegal, topic[{topic_name}] readQueueNums[{topic.read_queues}]",
            )
        return pull

    def _filter(self, group: SubscriptionGroupConfig, topic: TopicConfig, ext: dict[str, str]) -> MessageFilter:
        version = int_field(ext, "subVersion", 0)
        if int_field(ext, "sysFlag", 0) & FLAG_SUBSCRIPTION:
            try:
                wanted = parse_subscription(topic.name, ext.get("subscription"), ext.get("expressionType"), version)
            except BadExpression as error:
                raise ReplyError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
            return message_filter(wanted, property_filter=self._live.broker.enable_property_filter)
        wanted = self._registered(group, topic)
        if wanted.version < version and wanted.is_tag:
            return EVERYTHING
        return message_filter(wanted, property_filter=self._live.broker.enable_property_filter)

    def _registered(self, group: SubscriptionGroupConfig, topic: TopicConfig) -> Subscription:
        """Returns what the group's heartbeats said about the topic."""
        live = self._members.consumer_group(group.name)
        if live is None:
            raise ReplyError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist, group: {group.name}"
            )
        if live.is_broadcasting and not group.consume_broadcast_enable:
            raise ReplyError(
                ResponseCode.NO_PERMISSION, f"the consumer group[{group.name}] can not consume by broadcast way"
            )
        if self._groups.is_forbidden(group.name, topic.name):
            raise ReplyError(
                ResponseCode.NO_PERMISSION, f"the consumer group[{group.name}] is forbidden for topic[{topic.name}]"
            )
        found = live.subscriptions.get(topic.name)
        if found is None:
            raise ReplyError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist, group: {group.name}, topic:{topic.name}",
            )
        return found

    def _refuse(self, connection: Connection, command: Command, error: ReplyError) -> bytes | None:
        if command.language != "CPP" or command.is_oneway:
            raise error
        # The C++ client repeats a refused pull at once, thousands of times a second.
        reply = encode_response(command.opaque, error.code, error.remark)
        self._loop.call_later(self._live.broker.pull_error_delay_ms / 1000, connection.send, reply)
        return None

    # reading and answering ------------------------------------------------------------------------------------------

    def _run(self, pull: _Pull, deadline: float) -> None:
        """Reads and answers, or parks it until `deadline` (0: never) when there is nothing new."""
        found = self._get(pull)
        if found.status is GetStatus.FOUND:
            first, last = found.first_physical_offset, found.last_physical_offset
            if not self.warm_log.is_warm(first, last) and self.warm_log.soon(
                found.slices, first, last, lambda: self._run_warm(pull, deadline)
            ):
                return
        self._finish(pull, self._filtered(pull, found), deadline)

    def _run_warm(self, pull: _Pull, deadline: float) -> None:
        """Runs a pull again whose messages are in memory now; reads everything anew, since time has passed."""
        self._finish(pull, self._filtered(pull, self._get(pull)), deadline)

    def _finish(self, pull: _Pull, found: GetResult, deadline: float) -> None:
        if deadline and self._is_waiting(pull, found) and self._park(pull, deadline):
            return
        if found.status is GetStatus.FOUND:
            self._answer_found(pull, found)
        else:
            self._answer_nothing(pull, found)

    def _get(self, pull: _Pull) -> GetResult:
        config = self._live.broker
        bytes_max, count_max = config.pull_bytes_max, config.pull_count_max
        if pull.bytes_max > 0:  # a client that says how much it takes: bulk readers
            bytes_max, count_max = min(pull.bytes_max, config.pull_bytes_asked_max), PULL_COUNT_ASKED_MAX
        if pull.filter.sql is not None:
            count_max = min(count_max, sql_count_max(pull.filter.sql.text))
            bytes_max = min(bytes_max, SQL_BYTES_MAX)
        return self._store.reader.get(
            pull.topic.name,
            pull.queue_id,
            pull.offset,
            max(1, min(pull.count_max, count_max)),
            bytes_max,
            pull.filter.match_code,
        )

    def _filtered(self, pull: _Pull, found: GetResult) -> GetResult:
        """Reads the records and keeps those whose properties pass SQL92; tags were compared in the queue's entries."""
        wanted = pull.filter
        if wanted.sql is not None and found.status is GetStatus.FOUND:
            kept = wanted.keep(split_records(found.slices))
            if not kept:
                return found._replace(status=GetStatus.NO_MATCHED_MESSAGE, slices=[], count=0)
            return found._replace(slices=kept, count=len(kept))
        return found

    def _is_waiting(self, pull: _Pull, found: GetResult) -> bool:
        """Returns whether nothing can be said before another message comes."""
        status = found.status
        if status is GetStatus.OFFSET_OVERFLOW_ONE or status is GetStatus.OFFSET_FOUND_NULL:
            return True
        if status in _BEYOND and self._shows_less_than_it_has:
            return True
        if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return pull.offset == 0 or self.role is BrokerRole.SLAVE
        if status is GetStatus.OFFSET_OVERFLOW_BADLY:
            # A slave that lags: its consumer is ahead of it, not wrong. Upstream answers "retry at once" and spins.
            return self.role is BrokerRole.SLAVE and not self._live.broker.offset_check_in_slave
        return False

    @property
    def _shows_less_than_it_has(self) -> bool:
        """Whether the log has messages that readers may not see yet, as after a crash, until they are confirmed again.

        A consumer ahead of what is shown has seen them before: it is not wrong, and must not be sent back.
        """
        return self._store.dispatched < self._store.appended

    @staticmethod
    def _waits_on(pull: _Pull, found: GetResult) -> bool:
        """Returns whether what a parked pull was woken for is filtered out, so that it need not know.

        One that has not waited yet is told at once, so that its consumer's offset moves past such messages."""
        if found.status is not GetStatus.NO_MATCHED_MESSAGE or found.next_offset <= pull.offset:
            return False
        pull.offset = found.next_offset  # examined entries need no second look
        return pull.offset >= found.max_offset

    def _park(self, pull: _Pull, deadline: float) -> bool:
        queue, held = (pull.topic.name, pull.queue_id), pull.filter
        if self.parked.park(ParkedPull(queue, pull.connection, deadline, pull, held, held.text_size)):
            self._arm_timer(deadline)
            return True
        return False

    def arrived(self, queues: set[Queue]) -> None:
        """Wakes pulls that wait for these queues: messages became readable in them."""
        if not len(self.parked):
            return
        self._woken.extend(self.parked.take(queues))
        if self._waking is None:
            self._wake()

    def _wake(self) -> None:
        """Runs the pulls that were woken, for a slice of time; the rest in the loop's next turn."""
        self._waking = None
        end = self._clock.monotonic() + WOKEN_SLICE_S
        while self._woken:
            if self._clock.monotonic() >= end:
                self._waking = self._loop.call_soon(self._wake)
                return
            parked = self._woken.popleft()
            pull = parked.request
            if not pull.connection.is_open:
                continue
            try:
                found = self._filtered(pull, self._get(pull))
            except Exception as error:
                log.error("a parked pull failed topic=%s queue=%d", pull.topic.name, pull.queue_id, exc_info=error)
                pull.connection.abort("a parked pull failed")
                continue
            if (self._is_waiting(pull, found) or self._waits_on(pull, found)) and self.parked.park(parked):
                continue
            if found.status is GetStatus.FOUND:
                self._answer_found(pull, found)
            else:
                self._answer_nothing(pull, found)

    def offset_reset(self, topic: str, queue_id: int) -> None:
        """Answers the parked pull of a group whose offset an administrator moved on this queue; others wait on."""
        for parked in self.parked.take([(topic, queue_id)]):
            pull = parked.request
            reset = self._offsets.take_reset(pull.group.name, topic, queue_id)
            if reset is None and self.parked.park(parked):
                continue
            if reset is None:
                self._run(pull, 0.0)
            else:
                self._answer_reset(pull, reset)

    def _answer_reset(self, pull: _Pull, offset: int) -> None:
        low, high = self._store.reader.queue_range(pull.topic.name, pull.queue_id)
        self._answer(pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", offset, low, high, SUGGEST_MASTER)

    def _on_timer(self) -> None:
        self._timer = None
        for parked in self.parked.expire(self._clock.monotonic()):
            self._run(parked.request, 0.0)
        deadline = self.parked.next_deadline
        if deadline is not None:
            self._arm_timer(deadline)

    def _arm_timer(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._clock.monotonic()), self._on_timer)

    def dropped(self, connection: Connection) -> None:
        """Forgets the parked pulls of a connection that closed."""
        self.parked.drop_owner(connection)

    def release_all(self) -> None:
        """Answers every parked pull now: the broker stops, or its role changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for parked in [*self._woken, *self.parked.take_all()]:
            self._run(parked.request, 0.0)
        self._woken.clear()

    def close(self) -> None:
        """Stops timers and workers; parked pulls end with their connections."""
        if self._waking is not None:
            self._waking.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.warm_log.close()

    def _answer_found(self, pull: _Pull, found: GetResult) -> None:
        slices = found.slices
        size = sum(map(len, slices))
        flow = self._stats.get_flow(pull.topic.name, pull.group.name)
        flow.messages += found.count
        flow.bytes += size
        self._stats.pulls_found += 1
        if pull.is_oneway:
            return
        behind = self._store.appended - found.last_physical_offset
        ext = _ext(found.next_offset, found.min_offset, found.max_offset, self._suggestion(pull, behind))
        head = response_head(pull.opaque, ResponseCode.SUCCESS, "FOUND", ext, size)
        pull.connection.send_parts([head, *slices])

    def _answer_nothing(self, pull: _Pull, found: GetResult) -> None:
        self._stats.pulls_missed += 1
        status, next_offset = found.status, found.next_offset
        code = _CODES[status]
        if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE) and pull.asked == 0:
            code = ResponseCode.PULL_NOT_FOUND
        if status is GetStatus.OFFSET_OVERFLOW_ONE and pull.offset > pull.asked:
            # It waited, and everything that came was examined and filtered out.
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        suggestion = self._suggestion(pull, 0)
        if code == ResponseCode.PULL_OFFSET_MOVED and status in _BEYOND and self._shows_less_than_it_has:
            code, next_offset = ResponseCode.PULL_NOT_FOUND, pull.asked
        if (
            code == ResponseCode.PULL_OFFSET_MOVED
            and self.role is BrokerRole.SLAVE
            and not self._live.broker.offset_check_in_slave
        ):
            code, next_offset, suggestion = ResponseCode.PULL_RETRY_IMMEDIATELY, pull.asked, pull.group.broker_id
        self._answer(pull, code, status.name, next_offset, found.min_offset, found.max_offset, suggestion)

    def _answer(
        self, pull: _Pull, code: int, remark: str, next_offset: int, low: int, high: int, suggestion: int
    ) -> None:
        if not pull.is_oneway:
            pull.connection.send(encode_response(pull.opaque, code, remark, _ext(next_offset, low, high, suggestion)))

    def _suggestion(self, pull: _Pull, behind: int) -> int:
        """Returns which member of the group to ask next: a slave when the consumer is too far behind for our memory."""
        if not self._live.broker.slave_read_enable:
            return SUGGEST_MASTER
        is_slow = behind > self.memory_window
        return pull.group.which_broker_when_consume_slowly if is_slow else pull.group.broker_id


def _ext(next_offset: int, low: int, high: int, suggestion: int) -> dict[str, str]:
    return {
        "maxOffset": str(high),
        "minOffset": str(low),
        "nextBeginOffset": str(next_offset),
        "suggestWhichBrokerId": str(suggestion),
    }
