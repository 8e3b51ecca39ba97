"""Admin's part about topics."""

import asyncio
from collections.abc import Iterable

from tandemq.client.admin_base import ClusterAdmin
from tandemq.client.admin_views import QueueStatus
from tandemq.codec import bodies
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.errors import ClientError, RemotingError, ReplyError
from tandemq.model.topic import AUTO_CREATE_TOPIC, QueueRef, TopicConfig, topic_name_problem


class TopicAdmin(ClusterAdmin):
    """Topics and the ranges of their queues."""

    async def topics(self) -> list[str]:
        reply = await self.session.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        listed = bodies.load_object(reply.body, "topic list").get("topicList")
        return sorted(bodies.texts_of(listed, "topicList"))

    async def create_topic(
        self, topic: TopicConfig, *, cluster: str | None = None, brokers: Iterable[str] = ()
    ) -> list[str]:
        """Creates or changes a topic on the masters of a cluster, or on those named; gives the masters' names."""
        problem = topic_name_problem(topic.name)
        if problem:
            raise ClientError(problem)
        fields = {
            "topic": topic.name,
            "defaultTopic": AUTO_CREATE_TOPIC,
            "readQueueNums": str(topic.read_queues),
            "writeQueueNums": str(topic.write_queues),
            "perm": str(topic.perm),
            "topicFilterType": topic.filter_type,
            "topicSysFlag": str(topic.sys_flag),
            "order": "true" if topic.order else "false",
        }
        if topic.attributes:
            fields["attributes"] = ",".join(f"+{key}={value}" for key, value in topic.attributes.items())
        return await self._on_masters(
            cluster, brokers, lambda a: self._ask(a, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        )

    async def topic_configs(self, topic: str) -> dict[str, TopicConfig]:
        """Returns broker name -> the topic's settings there, for each master that has it."""
        found: dict[str, TopicConfig] = {}
        for name, address in (await self._masters(None, ())).items():
            try:
                reply = await self._ask(address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
                found[name] = bodies.topic_config_of(bodies.load_object(reply.body, "topic"), topic)
            except ReplyError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # RocketMQ 4 only gives the whole table
                    reply = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
                    table, _ = bodies.topic_table_of(bodies.load_object(reply.body, "topics"))
                    if topic in table:
                        found[name] = table[topic]
                elif error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
        return found

    async def rate(self, address: str, figure: str, key: str) -> float:
        """Returns events per second over the last minute, by RocketMQ's names: `TOPIC_PUT_NUMS` of a topic, …"""
        try:
            reply = await self._ask(address, RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": figure, "statsKey": key})
        except ReplyError:
            return 0.0  # nothing was counted yet
        minute = bodies.object_of(bodies.load_object(reply.body, "stats").get("statsMinute"), "statsMinute")
        return float(minute.get("tps") or 0.0)

    async def counted(self, address: str, figure: str, key: str) -> dict[str, tuple[float, float]]:
        """Returns (a second, sum) of a figure over `minute`, `hour` and `day`; nothing if it was never counted."""
        try:
            reply = await self._ask(address, RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": figure, "statsKey": key})
        except ReplyError:
            return {}
        found = bodies.load_object(reply.body, "stats")
        spans = {name: bodies.object_of(found.get(f"stats{name.title()}"), name) for name in ("minute", "hour", "day")}
        return {name: (float(span.get("tps") or 0), float(span.get("sum") or 0)) for name, span in spans.items()}

    async def readers(self, topic: str) -> list[tuple[str, str]]:
        """Returns (broker name, address to ask) of every broker that has the topic."""
        return await self._readers(topic)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Removes a topic from brokers, then from name servers; gives the masters' names."""
        names = await self._on_masters(
            cluster, (), lambda a: self._ask(a, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        )
        for address in self.session.namesrv.candidates():
            try:
                await self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
            except RemotingError:
                continue  # it forgets the topic when the broker registers next
        self.session.routes.forget(topic)
        return names

    async def topic_status(self, topic: str) -> list[QueueStatus]:
        """Ranges of every queue of a topic, in order."""
        found: list[QueueStatus] = []
        for name, address in await self._readers(topic):
            reply = await self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            table = bodies.queue_table_of(bodies.load_object(reply.body, "topic stats").get("offsetTable"))
            for queue, numbers in table.items():
                found.append(
                    QueueStatus(
                        QueueRef(queue.topic, name, queue.queue_id),
                        bodies.int_of(numbers, "minOffset"),
                        bodies.int_of(numbers, "maxOffset"),
                        bodies.int_of(numbers, "lastUpdateTimestamp"),
                    )
                )
        return sorted(found, key=lambda status: status.queue)

    async def queue_range(self, queue: QueueRef) -> tuple[int, int]:
        """Returns the [first, next) offsets of a queue."""
        address = await self.session.any_address(queue.broker_name, queue.topic)
        low, high = await asyncio.gather(
            self.session.api.min_offset(address, queue), self.session.api.max_offset(address, queue)
        )
        return max(0, low), high

    async def queue_ranges(self, topic: str) -> dict[QueueRef, tuple[int, int]]:
        """Returns the [first, next) offsets of every readable queue of a topic."""
        queues = await self.queues(topic)
        ranges = await asyncio.gather(*(self.queue_range(queue) for queue in queues))
        return dict(zip(queues, ranges, strict=True))

    async def offset_at(self, queue: QueueRef, timestamp_ms: int) -> int:
        """Returns the offset of the first message of a queue stored at or after a time."""
        address = await self.session.any_address(queue.broker_name, queue.topic)
        return await self.session.api.offset_at(address, queue, timestamp_ms)
