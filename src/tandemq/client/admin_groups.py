"""Admin's part about consumer groups and their offsets."""

from collections.abc import Iterable

from tandemq.client.admin_base import ClusterAdmin
from tandemq.client.admin_views import GroupMember, GroupProgress, QueueLag
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.errors import ClientError, ReplyError
from tandemq.model.topic import QueueRef, SubscriptionGroupConfig, group_name_problem

LATEST = -1
"""A time for `reset_offsets`: the end of every queue."""


class GroupAdmin(ClusterAdmin):
    """Consumer groups: their settings, members and progress."""

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """Returns the subscription groups of all masters, by name."""
        found: dict[str, SubscriptionGroupConfig] = {}
        for address in (await self._masters(None, ())).values():
            reply = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            table, _ = bodies.group_table_of(bodies.load_object(reply.body, "groups"))
            found.update(table)
        return dict(sorted(found.items()))

    async def create_group(
        self, group: SubscriptionGroupConfig, *, cluster: str | None = None, brokers: Iterable[str] = ()
    ) -> list[str]:
        problem = group_name_problem(group.name)
        if problem:
            raise ClientError(problem)
        body = fastjson.dumps(bodies.group_config_json(group))
        return await self._on_masters(
            cluster,
            brokers,
            lambda a: self._ask(a, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body),
        )

    async def delete_group(self, group: str, *, cluster: str | None = None, offsets: bool = True) -> list[str]:
        """Removes a group, with its offsets unless told otherwise."""
        fields = {"groupName": group, "cleanOffset": "true" if offsets else "false"}
        return await self._on_masters(cluster, (), lambda a: self._ask(a, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields))

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        """Returns how far a group has come, queue by queue, and how much is left."""
        fields = {"consumerGroup": group}
        if topic:
            fields["topic"] = topic
        lags: list[QueueLag] = []
        tps = 0.0
        for name, address in (await self._masters(None, ())).items():
            try:
                reply = await self._ask(address, RequestCode.GET_CONSUME_STATS, fields)
            except ReplyError as error:
                if error.code in (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST):
                    continue
                raise
            found = bodies.load_object(reply.body, "consume stats")
            tps += float(found.get("consumeTps") or 0.0)
            for queue, numbers in bodies.queue_table_of(found.get("offsetTable")).items():
                lags.append(
                    QueueLag(
                        QueueRef(queue.topic, name, queue.queue_id),
                        bodies.int_of(numbers, "brokerOffset"),
                        bodies.int_of(numbers, "consumerOffset"),
                        bodies.int_of(numbers, "lastTimestamp"),
                    )
                )
        return GroupProgress(group, tuple(sorted(lags, key=lambda lag: lag.queue)), tps)

    async def members(self, group: str) -> list[GroupMember]:
        """Returns the clients of a group that are connected; none if it is offline."""
        found: dict[str, GroupMember] = {}
        for address in (await self._masters(None, ())).values():
            try:
                reply = await self._ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
            except ReplyError as error:
                if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR):
                    continue
                raise
            body = bodies.load_object(reply.body, "connections")
            table = bodies.object_of(body.get("subscriptionTable"), "subscriptionTable")
            subscriptions = {str(topic): bodies.text_of(item, "subString") for topic, item in table.items()}
            for item in bodies.list_of(body.get("connectionSet"), "connectionSet"):
                client_id = bodies.text_of(item, "clientId")
                found[client_id] = GroupMember(
                    client_id,
                    bodies.text_of(item, "clientAddr"),
                    bodies.text_of(item, "language"),
                    bodies.int_of(item, "version"),
                    subscriptions,
                    found[client_id].brokers + 1 if client_id in found else 1,
                )
        return [found[key] for key in sorted(found)]

    async def groups_of_topic(self, topic: str) -> list[str]:
        """Returns the groups that have offsets of a topic or consume it now."""
        found: set[str] = set()
        for _, address in await self._readers(topic):
            reply = await self._ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
            listed = bodies.load_object(reply.body, "groups").get("groupList")
            found.update(bodies.texts_of(listed, "groupList"))
        return sorted(found)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[QueueRef, int]:
        """Moves a group to the first messages stored at or after a time (LATEST: to the end).

        The broker does it and tells running members. When the group is offline on a 4.x broker, which then refuses, the
        offsets are written directly.
        """
        fields = {
            "topic": topic,
            "group": group,
            "timestamp": str(timestamp_ms),
            "isForce": "true" if force else "false",
        }
        result: dict[QueueRef, int] = {}
        for name, address in await self._readers(topic):
            try:
                reply = await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
                body = bodies.load_object(reply.body, "reset offsets") if reply.body else {}
                for queue, offset in bodies.queue_table_of(body.get("offsetTable")).items():
                    result[QueueRef(queue.topic, name, queue.queue_id)] = int(offset)
            except ReplyError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                result.update(await self._write_offsets(group, topic, name, address, timestamp_ms))
        return dict(sorted(result.items()))

    async def _write_offsets(
        self, group: str, topic: str, name: str, address: str, timestamp_ms: int
    ) -> dict[QueueRef, int]:
        api = self.session.api
        written: dict[QueueRef, int] = {}
        for queue in await self.queues(topic):
            if queue.broker_name == name:
                at_end = timestamp_ms == LATEST
                offset = await (
                    api.max_offset(address, queue) if at_end else api.offset_at(address, queue, timestamp_ms)
                )
                await api.update_offset(address, group, queue, offset)
                written[queue] = offset
        return written

    async def reset_queue(self, group: str, queue: QueueRef, offset: int) -> None:
        """Moves a group on one queue; members that run follow. Only TandemQ's brokers surely know this request."""
        address = await self.session.master(queue.broker_name, queue.topic)
        fields = {
            "topic": queue.topic, "group": group, "timestamp": "-1", "isForce": "true",
            "queueId": str(queue.queue_id), "offset": str(offset),
        }  # fmt: skip
        await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)

    async def delays(self, group: str, topic: str) -> dict[QueueRef, int]:
        """Returns how old (ms) the next message of a group is on each queue that it has not emptied."""
        found: dict[QueueRef, int] = {}
        for name, address in await self._readers(topic):
            fields = {"topic": topic, "group": group}
            try:
                reply = await self._ask(address, RequestCode.QUERY_CONSUME_TIME_SPAN, fields)
            except ReplyError:
                continue  # the group never read here
            listed = bodies.load_object(reply.body, "time spans").get("consumeTimeSpanSet")
            for span in bodies.list_of(listed, "consumeTimeSpanSet"):
                queue = bodies.queue_of(span.get("messageQueue"))
                found[QueueRef(topic, name, queue.queue_id)] = max(0, bodies.int_of(span, "delayTime"))
        return found

    async def producers(self) -> dict[str, list[GroupMember]]:
        """Returns the producers that are connected, by group; nothing from brokers too old to list them."""
        found: dict[str, dict[str, GroupMember]] = {}
        for address in (await self._masters(None, ())).values():
            try:
                reply = await self._ask(address, RequestCode.GET_ALL_PRODUCER_INFO)
            except ReplyError as error:
                if error.code in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR):
                    continue
                raise
            data = bodies.object_of(bodies.load_object(reply.body, "producers").get("data"), "data")
            for group, members in data.items():
                for item in bodies.list_of(members, "producers"):
                    client_id = bodies.text_of(item, "clientId")
                    of_group = found.setdefault(str(group), {})
                    known = of_group.get(client_id)
                    of_group[client_id] = GroupMember(
                        client_id, bodies.text_of(item, "remoteIP"), bodies.text_of(item, "language"),
                        bodies.int_of(item, "version"), {}, known.brokers + 1 if known else 1,
                    )  # fmt: skip
        return {group: [members[key] for key in sorted(members)] for group, members in sorted(found.items())}

    async def set_offset(self, group: str, queue: QueueRef, offset: int) -> None:
        """Writes one committed offset."""
        address = await self.session.master(queue.broker_name, queue.topic)
        await self.session.api.update_offset(address, group, queue, offset)
