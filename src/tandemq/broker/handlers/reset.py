"""Where groups stand, moved by an administrator: INVOKE_BROKER_TO_RESET_OFFSET and CLONE_GROUP_OFFSET.

A reset works as in RocketMQ 5 (useServerSideResetOffset): the new offset is noted, the group's next pull of the queue
is answered PULL_OFFSET_MOVED with it, and commits until then don't count; parked pulls are woken for it. Clients older
than 5.0 are told as well (RESET_CONSUMER_CLIENT_OFFSET), each in the form its language reads, so that they drop what
they hold of the queue.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import islice

from tandemq.broker.live_config import LiveConfig
from tandemq.broker.long_answers import LongAnswer, member
from tandemq.broker.replies import bool_field, int_field, text_field
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.offsets import ENTRIES_MAX, OffsetTable
from tandemq.broker.tables.topics import TopicTable
from tandemq.broker.warm_log import WarmLog
from tandemq.clock import Clock
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import RemotingError, ReplyError
from tandemq.model.topic import QueueRef, TopicConfig
from tandemq.remoting.access.needs import GET, UPDATE, needs, on_group, on_topic, require, topic_need
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.remoting.slices import Slices
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)

LATEST = -1
LOGGED_MAX = 64
"""Queues of a reset that the log shows."""
SERVER_SIDE_SINCE = 413
"""V5_0_0: from here on clients handle a reset that comes as the answer to a pull."""


class ResetHandlers:
    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        members: Members,
        clock: Clock,
        *,
        is_slave: Callable[[], bool],
        wake: Callable[[str, int], None] = lambda topic, queue_id: None,
        warm_log: WarmLog | None = None,
    ) -> None:
        self._live = live
        self._is_slave = is_slave
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._clock = clock
        self._wake = wake
        """Answers the pulls parked on a queue now."""
        self._warm_log = warm_log

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    @needs(on_topic("topic", UPDATE), on_group("group", UPDATE))
    async def reset(self, connection: Connection, command: Command) -> bytes:
        if self._is_slave():
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        ext = command.ext
        topic, group = self._topic(text_field(ext, "topic")), text_field(ext, "group")
        if group not in self._groups:
            raise ReplyError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        timestamp, answer = int_field(ext, "timestamp", LATEST), LongAnswer(self._clock)
        targets = {}
        async for queue_id, offset in self._targets(
            topic, int_field(ext, "queueId", -1), timestamp, int_field(ext, "offset", -1)
        ):
            targets[queue_id] = offset
            self._offsets.set_reset(group, topic.name, queue_id, offset)
            self._wake(topic.name, queue_id)
            await answer.breathe()
        if not targets:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"No queues to reset: {topic.name} has no read queues")
        shown = dict(islice(targets.items(), LOGGED_MAX))
        log.info(
            "offsets of group %s on %d queues of %s were reset to %s%s by %s",
            group, len(targets), topic.name, shown, ", …" if len(shown) < len(targets) else "", connection.peer,
        )  # fmt: skip
        name = self._live.broker.broker_name
        await self._tell_members(group, topic.name, timestamp, bool_field(ext, "isForce"), targets)
        listed = await answer.joined(
            member(bodies.queue_key(QueueRef(topic.name, name, queue_id)), offset)
            for queue_id, offset in targets.items()
        )
        return answer.encoded(command, b'{"offsetTable":{%b}}' % listed)

    @needs(on_group("srcGroup", GET), on_group("destGroup", UPDATE), on_topic("topic", UPDATE, if_given=True))
    async def clone(self, connection: Connection, command: Command) -> bytes:
        ext, slices = command.ext, Slices(self._clock)
        source, target = text_field(ext, "srcGroup"), text_field(ext, "destGroup")
        if target not in self._groups and self._groups.find_or_create(target) is None:
            raise ReplyError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {target} does not exist")
        topics = [ext["topic"]] if ext.get("topic") else self._offsets.topics_of(source)
        live = self._members.consumer_group(source)
        for topic in topics:
            unread = live is not None and live.subscriptions and topic not in live.subscriptions
            if topic not in self._topics or (unread and not bool_field(ext, "offline")):
                continue
            require(command, topic_need(topic, UPDATE))
            if not self._offsets.clone(source, target, topic):
                raise ReplyError(ResponseCode.SYSTEM_BUSY, f"topic {topic}: no room for more offsets ({ENTRIES_MAX})")
            await slices.breathe()
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise ReplyError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {name} does not exist")
        return topic

    async def _targets(
        self, topic: TopicConfig, queue_id: int, timestamp: int, offset: int
    ) -> AsyncIterator[tuple[int, int]]:
        """Yields (queue, offset), found one by one."""
        if queue_id < 0 or offset < 0:
            for queue in range(topic.read_queues) if queue_id < 0 else (queue_id,):
                yield queue, await self._at(topic.name, queue, timestamp)
            return
        first, last = self._store.reader.queue_range(topic.name, queue_id)
        if not first <= offset <= last + 1:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR, f"Target offset {offset} not in consume queue range [{first}-{last}]"
            )
        yield queue_id, offset

    async def _at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self._store.reader.queue_range(topic, queue_id)[1]
        if self._warm_log is not None:
            await self._warm_log.before_search(topic, queue_id, timestamp)
        return self._store.reader.search_by_time(topic, queue_id, timestamp)

    async def _tell_members(
        self, group: str, topic: str, timestamp: int, force: bool, targets: Mapping[int, int]
    ) -> None:
        live = self._members.consumer_group(group)
        if live is None:
            return
        ext = {"topic": topic, "group": group, "timestamp": str(timestamp), "isForce": "true" if force else "false"}
        told: dict[bool, bytes] = {}
        """Bodies by whether C++ reads them: each is made once, if somebody needs it."""
        name = self._live.broker.broker_name
        for one in list(live.members.values()):
            if one.version >= SERVER_SIDE_SINCE:
                continue
            is_cpp = one.language == "CPP"
            if is_cpp not in told:
                told[is_cpp] = await asyncio.to_thread(_reset_body, is_cpp, topic, name, targets)
            request = Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(ext), told[is_cpp])
            try:
                one.connection.send_oneway(request)
            except RemotingError as error:
                log.info("client %s was not told of a reset: %s", one.client_id, error)


def _reset_body(is_cpp: bool, topic: str, broker_name: str, targets: Mapping[int, int]) -> bytes:
    """Returns the body as the client reads it: C++ a list, everybody else a map with queues as keys.

    It is made beside the loop: a topic may have 65,536 queues.
    """
    table = {QueueRef(topic, broker_name, queue_id): offset for queue_id, offset in targets.items()}
    if is_cpp:
        rows = [{**bodies.queue_json(queue), "offset": offset} for queue, offset in table.items()]
        return fastjson.dumps_unquoted({"offsetTable": rows})
    return fastjson.dumps_unquoted({"offsetTable": bodies.queue_table_json(table)})
