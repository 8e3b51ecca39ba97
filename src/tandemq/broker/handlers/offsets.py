"""Offsets: what groups have consumed (14, 15, 43) and where queues begin and end (29, 30, 31, 32)."""

from collections.abc import Callable

from tandemq.broker.handlers.pull import PullHandlers
from tandemq.broker.handlers.table_answers import table_for_slave
from tandemq.broker.long_answers import LongAnswer, member
from tandemq.broker.replies import int_field, text_field
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.clock import Clock
from tandemq.codec import fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import ReplyError
from tandemq.remoting.access.needs import GET, SUB, UPDATE, needs, on_cluster, on_group, on_topic
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.replication.metadata import LOG_END, SINCE
from tandemq.store.message_store import GetStatus, MessageStore

QUEUES_AT_ONCE = 1024
"""Offsets of one group on one topic that are written without a break; a topic may have 65,536 queues."""


class OffsetHandlers:
    """Questions and commits about offsets."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        pulls: PullHandlers,
        clock: Clock,
        *,
        true_at: Callable[[], int],
    ) -> None:
        self._true_at = true_at
        """Position of the log at which the table is true."""
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._pulls = pulls
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_MAX_OFFSET: self.newest,
            RequestCode.GET_MIN_OFFSET: self.oldest,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all,
        }

    @needs(on_group("consumerGroup", SUB | GET), on_topic("topic", SUB | GET))
    def query(self, connection: Connection, command: Command) -> bytes:
        ext = command.ext
        group, topic, queue_id = text_field(ext, "consumerGroup"), text_field(ext, "topic"), int_field(ext, "queueId")
        offset = self._offsets.query(group, topic, queue_id)
        if offset >= 0:
            return _offset(command, offset)
        if ext.get("setZeroIfNotFound", "").lower() == "false":
            raise ReplyError(ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first")
        if self._is_young(topic, queue_id):
            return _offset(command, 0)
        raise ReplyError(
            ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        )

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Returns whether nothing was ever deleted from the queue and its first message is near.

        New groups start there.

        Without it a group that starts together with a topic would skip what was sent before its first pull.
        """
        low, high = self._store.reader.queue_range(topic, queue_id)
        if low > 0:
            return False
        if high == 0:
            return True
        first = self._store.reader.get(topic, queue_id, 0, 1, 1, None)
        if first.status is not GetStatus.FOUND:
            return False
        return self._store.appended - first.last_physical_offset <= self._pulls.memory_window

    @needs(on_group("consumerGroup", SUB | UPDATE), on_topic("topic", SUB | UPDATE))
    def update(self, connection: Connection, command: Command) -> bytes:
        ext = command.ext
        group, topic = text_field(ext, "consumerGroup"), text_field(ext, "topic")
        if "queueId" not in ext or "commitOffset" not in ext:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, "queueId and commitOffset are required")
        if self._groups.find_or_create(group) is None:
            raise ReplyError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group[:120]} not exist!")
        config = self._topics.get(topic)
        if config is None:
            raise ReplyError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic[:120]} not exist!")
        queue_id, offset = int_field(ext, "queueId"), int_field(ext, "commitOffset")
        if not 0 <= queue_id < max(config.read_queues, config.write_queues):
            raise ReplyError(ResponseCode.INVALID_PARAMETER, f"queueId[{queue_id}] is illegal for topic[{topic}]")
        if not self._offsets.has_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, offset)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    @needs(on_topic("topic", SUB | GET))
    async def search(self, connection: Connection, command: Command) -> bytes:
        ext = command.ext
        upper = ext.get("boundaryType", "").upper() == "UPPER"
        topic, queue_id, timestamp = text_field(ext, "topic"), int_field(ext, "queueId"), int_field(ext, "timestamp")
        await self._pulls.warm_log.before_search(topic, queue_id, timestamp, upper)
        return _offset(command, self._store.reader.search_by_time(topic, queue_id, timestamp, upper))

    @needs(on_topic("topic", SUB | GET))
    def newest(self, connection: Connection, command: Command) -> bytes:
        return _offset(command, self._range(command)[1])

    @needs(on_topic("topic", SUB | GET))
    def oldest(self, connection: Connection, command: Command) -> bytes:
        return _offset(command, self._range(command)[0])

    def _range(self, command: Command) -> tuple[int, int]:
        return self._store.reader.queue_range(text_field(command.ext, "topic"), int_field(command.ext, "queueId"))

    @needs(on_topic("topic", SUB | GET))
    def earliest_time(self, connection: Connection, command: Command) -> bytes:
        topic, queue_id = text_field(command.ext, "topic"), int_field(command.ext, "queueId")
        timestamp = self._store.reader.earliest_store_time(topic, queue_id)
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, {"timestamp": str(timestamp)})

    @needs(on_cluster(GET))
    async def all(self, connection: Connection, command: Command) -> bytes:
        """Answers slaves with all offsets. Reads the log's end last: offsets that come in meanwhile are true there."""
        if SINCE in command.ext:
            return await table_for_slave(
                self._offsets, command, lambda: {LOG_END: str(self._true_at())}, clock=self._clock
            )
        answer, head = LongAnswer(self._clock), fastjson.dumps(self._offsets.members())[:-1]
        ((_, entries),) = self._offsets.maps()
        held = list(entries)
        pieces = [await answer.joined(member(*entry) for entry in held if len(entry[1]) <= QUEUES_AT_ONCE)]
        for key, queues in held:
            if len(queues) > QUEUES_AT_ONCE:
                listed = await answer.joined(member(*entry) for entry in list(queues.items()))
                pieces.append(b"%b:{%b}" % (fastjson.dumps(key), listed))
        table = b",".join(filter(None, pieces))
        return answer.encoded(command, b'%b,"offsetTable":{%b}}' % (head, table), {LOG_END: str(self._true_at())})


def _offset(command: Command, offset: int) -> bytes:
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, {"offset": str(offset)})
