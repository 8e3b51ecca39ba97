"""What administrators ask a broker: topic and consume statistics, runtime info, queue contents, clean-ups.

Answers have upstream's shapes (AdminBrokerProcessor), because its own `mqadmin` reads them. Requests about live clients
are in `clients_admin.py`, offset resets in `reset.py`, those of other brokers in `peers.py`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tandemq.broker.config import BrokerRole
from tandemq.broker.filters import message_filter
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.long_answers import LongAnswer, member
from tandemq.broker.record_slices import split_records
from tandemq.broker.replies import bool_field, int_field, text_field
from tandemq.broker.subscriptions import subscription_to_json
from tandemq.broker.tables.groups import FORBIDDEN_READ_BIT, GroupTable
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.broker.telemetry.progress import Progress
from tandemq.broker.telemetry.traffic import BrokerStats, Rate
from tandemq.broker.writer import MessageWriter
from tandemq.clock import Clock
from tandemq.codec import fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import ReplyError
from tandemq.formats.log_mark import TopicDeleted
from tandemq.formats.record import parse_record
from tandemq.model.message import TAGS, tags_code
from tandemq.model.topic import TopicConfig
from tandemq.remoting.access.needs import CLUSTER, GET, UPDATE, Need, may, needs, on_cluster, on_group, on_topic
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.remoting.slices import Slices
from tandemq.store.message_store import MessageStore

RUNTIME_INFO_FOR_ALL = ("brokerVersion", "brokerVersionDesc", "tandemqIdempotentSends")
"""What kind of broker this is; Spark's sink asks for it with the account it writes with."""
GROUPS_PER_TURN = 50
"""Groups whose progress is looked up before others get their turn."""
STATS_SIZE_MAX = 8 << 20
"""Bytes of the entries of GET_BROKER_CONSUME_STATS; the names of all groups come on top."""
QUEUE_ENTRIES_MAX = 1024
"""Entries of one QUERY_CONSUME_QUEUE answer."""


class AdminHandlers:
    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        writer: MessageWriter,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        members: Members,
        stats: BrokerStats,
        progress: Progress,
        clock: Clock,
        *,
        address: str,
        runtime_info: Callable[[], Mapping[str, str]],
        retain: Callable[[bool], None],
    ) -> None:
        self._live = live
        self._store = store
        self._writer = writer
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._stats = stats
        self._progress = progress
        self._clock = clock
        self._address = address
        self._runtime_info = runtime_info
        self._retain = retain

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.consumed_by_whom,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats_data,
            RequestCode.QUERY_CONSUME_QUEUE: self.consume_queue,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_by_consumer,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription_by_consumer,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction_offset,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.group_forbidden,
        }

    @needs()
    def runtime_info(self, connection: Connection, command: Command) -> bytes:
        """Tells an administrator everything, and any other account what a client must know of a broker."""
        table = dict(self._runtime_info())
        if not may(command, Need(CLUSTER, "", GET)):
            table = {name: table[name] for name in RUNTIME_INFO_FOR_ALL if name in table}
        return _json(command, {"table": table})

    @needs(on_topic("topic", GET))
    async def topic_stats(self, connection: Connection, command: Command) -> bytes:
        topic, answer = self._topic(command), LongAnswer(self._clock)
        table = await answer.joined(member(*entry) for entry in self._progress.topic_stats(topic))
        tps = fastjson.dumps(self._progress.topic_tps(topic.name))
        return answer.encoded(command, b'{"offsetTable":{%b},"topicPutTps":%b}' % (table, tps))

    @needs(
        on_group("consumerGroup", GET),
        on_topic("topic", GET, if_given=True),
        on_topic("topicList", GET, if_given=True, separator=";"),
    )
    async def consume_stats(self, connection: Connection, command: Command) -> bytes:
        ext, answer = command.ext, LongAnswer(self._clock)
        group = text_field(ext, "consumerGroup")
        topics = self._progress.topics_of(group, ext.get("topic", ""), ext.get("topicList", "").split(";"))
        return answer.encoded(command, await self._consume_stats(answer, group, list(dict.fromkeys(topics))))

    async def _consume_stats(self, answer: LongAnswer, group: str, topics: list[str]) -> bytes:
        table = await answer.joined(member(*entry) for entry in self._progress.consume_stats(group, topics))
        tps = fastjson.dumps(self._progress.consume_tps(group, topics))
        return b'{"consumeTps":%b,"offsetTable":{%b}}' % (tps, table)

    @needs(on_cluster(GET))
    async def broker_consume_stats(self, connection: Connection, command: Command) -> bytes:
        """Answers for every group of the broker (mqadmin brokerConsumeStats).

        Takes a few at a time: there may be thousands.
        """
        ordered_only = bool_field(command.ext, "isOrder")
        answer, listed, total = LongAnswer(self._clock, STATS_SIZE_MAX), [], 0
        for number, group in enumerate(sorted(self._groups.all())):
            if number % GROUPS_PER_TURN == GROUPS_PER_TURN - 1:
                await asyncio.sleep(0)
            stats = []
            for topic in self._progress.topics_of(group, ""):
                config = self._topics.get(topic)
                if config is None or (ordered_only and not config.order):
                    continue
                for _, lag in self._progress.lags(group, topic):
                    total += lag.broker_offset - lag.consumer_offset
                    await answer.breathe()
                stats.append(await self._consume_stats(answer, group, [topic]))
            listed.append(b"{%b:[%b]}" % (fastjson.dumps(group), b",".join(stats)))
        text = b",".join(listed)
        body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":0}'
        return answer.encoded(command, body % (fastjson.dumps(self._address), text, total))

    @needs(on_topic("topic", GET))
    def consumed_by_whom(self, connection: Connection, command: Command) -> bytes:
        topic = text_field(command.ext, "topic")
        groups = {*self._members.groups_subscribed_to(topic), *self._offsets.groups_of(topic)}
        return _json(command, {"groupList": sorted(groups)})

    @needs(on_topic("topic", GET), on_group("group", GET))
    async def time_span(self, connection: Connection, command: Command) -> bytes:
        topic, answer = self._topic(command), LongAnswer(self._clock)
        group = text_field(command.ext, "group")
        spans = (self._progress.time_span(group, topic.name, queue_id) for queue_id in range(topic.write_queues))
        text = await answer.joined(fastjson.dumps_unquoted(span) for span in spans)
        return answer.encoded(command, b'{"consumeTimeSpanSet":[%b]}' % text)

    @needs(on_cluster(GET))
    def system_topics(self, connection: Connection, command: Command) -> bytes:
        return _json(command, {"topicList": sorted(self._topics.system)})

    @needs(on_cluster(UPDATE))
    def clean(self, connection: Connection, command: Command) -> bytes:
        """Runs the log's own retention, which also removes queue files whose messages are gone."""
        self._retain(False)
        return _ok(command)

    @needs(on_cluster(UPDATE))
    def delete_expired(self, connection: Connection, command: Command) -> bytes:
        self._retain(True)
        return _ok(command)

    @needs(on_cluster(UPDATE))
    def clean_unused_topics(self, connection: Connection, command: Command) -> bytes:
        """Removes queues of topics without a configuration. A slave does not: its table may just not be copied yet."""
        if self._live.broker.role is BrokerRole.SLAVE:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "a slave's topics follow its master's: ask the master")
        for topic in {topic for topic, _ in self._store.reader.queues()}:
            if topic not in self._topics:
                self._writer.append_mark(TopicDeleted(topic))
        return _ok(command)

    @needs(on_cluster(GET))
    def stats_data(self, connection: Connection, command: Command) -> bytes:
        name, key = text_field(command.ext, "statsName"), text_field(command.ext, "statsKey")
        found = self._stats.item(name, key, self._clock.monotonic())
        if found is None:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        minute, hour, day = map(_rate_json, found)
        return _json(command, {"statsDay": day, "statsHour": hour, "statsMinute": minute})

    @needs(on_topic("topic", GET), on_group("consumerGroup", GET, if_given=True))
    async def consume_queue(self, connection: Connection, command: Command) -> bytes:
        ext = command.ext
        topic, queue_id = text_field(ext, "topic"), int_field(ext, "queueId")
        if (topic, queue_id) not in self._store.reader.queues():
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        index = int_field(ext, "index")
        count = min(max(int_field(ext, "count"), 0), QUEUE_ENTRIES_MAX)
        first, last = self._store.reader.queue_range(topic, queue_id)
        body: dict[str, Any] = {"maxQueueIndex": last, "minQueueIndex": first}
        evaluate = self._describe_filter(ext.get("consumerGroup"), topic, body)
        slices, entries = Slices(self._clock), list[dict[str, Any]]()
        while len(entries) < count:
            # Bodies of megabytes are looked at one by one; nothing of the log is held while others have their turn.
            got = self._store.reader.get(topic, queue_id, index, 1, 1, None)
            if not got.slices:
                break
            entries += [_entry_json(record, evaluate) for record in split_records(got.slices)]
            index = got.next_offset
            await slices.breathe()
        body["queueData"] = entries
        return _json(command, body)

    @needs(on_group("group", GET))
    def topics_by_consumer(self, connection: Connection, command: Command) -> bytes:
        topics = self._offsets.topics_of(text_field(command.ext, "group"))
        return _json(command, {"brokerAddr": self._address, "topicList": topics})

    @needs(on_group("group", GET), on_topic("topic", GET))
    def subscription_by_consumer(self, connection: Connection, command: Command) -> bytes:
        group, topic = text_field(command.ext, "group"), text_field(command.ext, "topic")
        live = self._members.consumer_group(group)
        found = live.subscriptions.get(topic) if live is not None else None
        body = {"group": group, "subscriptionData": subscription_to_json(found) if found else None, "topic": topic}
        return _json(command, body)

    @needs(
        on_topic("topic", GET),
        on_group("filterGroups", GET, if_given=True, separator=","),
        on_group("compareGroup", GET, if_given=True),
    )
    async def correction_offset(self, connection: Connection, command: Command) -> bytes:
        """Answers with the lowest offset of all groups but some on each queue (QUERY_CORRECTION_OFFSET)."""
        ext, answer = command.ext, LongAnswer(self._clock)
        topic = text_field(ext, "topic")
        skipped = set(ext.get("filterGroups", "").split(","))
        lowest: dict[int, int] = {}
        for group in self._offsets.groups_of(topic):
            if group in skipped:
                continue
            for queue_id, offset in self._offsets.of(group, topic).items():
                lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
            await answer.breathe()
        for queue_id, offset in self._offsets.of(ext.get("compareGroup", ""), topic).items():
            if lowest.get(queue_id, 0) > offset:
                lowest[queue_id] = 2**63 - 1
        listed = await answer.joined(member(*entry) for entry in lowest.items())
        return answer.encoded(command, b'{"correctionOffsets":{%b}}' % listed)

    @needs(on_group("group", UPDATE), on_topic("topic", UPDATE))
    def group_forbidden(self, connection: Connection, command: Command) -> bytes:
        ext = command.ext
        group, topic = text_field(ext, "group"), text_field(ext, "topic")
        if ext.get("readable"):
            mask = self._groups.forbidden(group, topic)
            bit = 1 << FORBIDDEN_READ_BIT
            self._groups.set_forbidden(group, topic, mask & ~bit if bool_field(ext, "readable") else mask | bit)
        readable = not self._groups.is_forbidden(group, topic)
        return _json(command, {"group": group, "readable": readable, "topic": topic})

    def _topic(self, command: Command) -> TopicConfig:
        name = text_field(command.ext, "topic")
        topic = self._topics.get(name)
        if topic is None:
            raise ReplyError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def _describe_filter(
        self, group: str | None, topic: str, body: dict[str, Any]
    ) -> Callable[[int, Mapping[str, str]], bool] | None:
        """Adds the group's subscription to the answer; returns the test each entry is shown with."""
        if not group:
            return None
        live = self._members.consumer_group(group)
        subscription = live.subscriptions.get(topic) if live is not None else None
        if subscription is None:
            body["filterData"] = f"{group}@{topic} is not online!"
            return None
        body["subscriptionData"] = subscription_to_json(subscription)
        body["filterData"] = subscription.expression
        return message_filter(subscription, property_filter=True).matches


def _entry_json(record: memoryview, evaluate: Callable[[int, Mapping[str, str]], bool] | None) -> dict[str, Any]:
    message = parse_record(record)
    code = tags_code(message.properties.get(TAGS, ""))
    return {
        "eval": evaluate(code, message.properties) if evaluate else False,
        "physicOffset": message.physical_offset,
        "physicSize": message.size,
        "tagsCode": code,
    }


def _rate_json(rate: Rate) -> dict[str, Any]:
    return {"avgpt": 1.0 if rate.sum else 0.0, "sum": rate.sum, "tps": rate.tps}


def _ok(command: Command) -> bytes:
    return encode_response(command.opaque, ResponseCode.SUCCESS)


def _json(command: Command, body: Mapping[Any, Any]) -> bytes:
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, fastjson.dumps_unquoted(body))
