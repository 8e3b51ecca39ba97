"""The requests a client makes of a broker, typed: one method each, no state, no retries.

`invoke` is the session's: it signs, sends and waits. Here is what goes into the ext fields and what
comes out.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import Subscription, consumer_ids_of, subscription_json
from tandemq.model.topic import QueueRef

Invoke = Callable[..., Awaitable[Command]]
"""invoke(address, code, ext, body=b"", timeout_ms=None) -> response; oneway=True gives None's stand-in at once."""

# sysFlag bits of a pull
SUSPEND = 2
HAS_SUBSCRIPTION = 4

PULL_ANSWERS = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@dataclass(frozen=True, slots=True)
class PullResult:
    """An answered pull. `code` is SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY or PULL_OFFSET_MOVED."""

    code: int
    records: bytes | memoryview
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int

    @property
    def found(self) -> bool:
        return self.code == ResponseCode.SUCCESS


class BrokerApi:
    """Requests to one broker address at a time."""

    def __init__(self, invoke: Invoke) -> None:
        self._invoke = invoke

    # reading

    async def pull(
        self,
        address: str,
        group: str,
        queue: QueueRef,
        offset: int,
        *,
        count_max: int,
        subscription: Subscription,
        suspend_ms: int = 0,
        timeout_ms: int,
    ) -> PullResult:
        """Pulls once. The subscription always travels along, so brokers need no heartbeat to know it.

        No offset is committed with it, as upstream's client does: brokers handle pulls and commits in different
        threads, and an old offset in a pull can overtake the last commit of a consumer that leaves.
        """
        flags = HAS_SUBSCRIPTION | (SUSPEND if suspend_ms else 0)
        ext = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(count_max),
            "sysFlag": str(flags),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(suspend_ms),
            "subscription": subscription.expression,
            "subVersion": str(subscription.version),
            "expressionType": subscription.expression_type,
        }
        reply = await self._invoke(address, RequestCode.PULL_MESSAGE, ext, timeout_ms=timeout_ms)
        reply.raise_for_code(*PULL_ANSWERS)
        fields = reply.ext
        return PullResult(
            reply.code,
            reply.body,
            int(fields.get("nextBeginOffset", offset)),
            int(fields.get("minOffset", 0)),
            int(fields.get("maxOffset", 0)),
            int(fields.get("suggestWhichBrokerId", 0)),
        )

    async def min_offset(self, address: str, queue: QueueRef) -> int:
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, _queue_fields(queue))

    async def max_offset(self, address: str, queue: QueueRef) -> int:
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, _queue_fields(queue))

    async def offset_at(self, address: str, queue: QueueRef, timestamp_ms: int) -> int:
        """Returns the offset of the first message stored at or after a time."""
        fields = {**_queue_fields(queue), "timestamp": str(timestamp_ms)}
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)

    async def earliest_store_time(self, address: str, queue: QueueRef) -> int:
        reply = await self._invoke(address, RequestCode.GET_EARLIEST_MSG_STORETIME, _queue_fields(queue))
        return int(reply.raise_for_code().ext["timestamp"])

    async def _offset(self, address: str, code: int, fields: dict[str, str]) -> int:
        reply = await self._invoke(address, code, fields)
        return int(reply.raise_for_code().ext["offset"])

    # consumer offsets

    async def query_offset(
        self, address: str, group: str, queue: QueueRef, *, zero_if_young: bool = True
    ) -> int | None:
        """Returns the group's committed offset, or None if it has none. Young queues answer 0 unless asked not to."""
        fields = {"consumerGroup": group, **_queue_fields(queue)}
        if not zero_if_young:
            fields["setZeroIfNotFound"] = "false"
        reply = await self._invoke(address, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = int(reply.raise_for_code().ext["offset"])
        return offset if offset >= 0 else None

    async def update_offset(self, address: str, group: str, queue: QueueRef, offset: int) -> None:
        fields = {"consumerGroup": group, **_queue_fields(queue), "commitOffset": str(offset)}
        (await self._invoke(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)).raise_for_code()

    # groups

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Returns the members the broker knows; none is an error on the wire and an empty list here."""
        reply = await self._invoke(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        if reply.code == ResponseCode.SYSTEM_ERROR and "no consumer for this group" in (reply.remark or ""):
            return []
        return list(consumer_ids_of(reply.raise_for_code().body))

    async def heartbeat(self, address: str, body: bytes) -> None:
        (await self._invoke(address, RequestCode.HEART_BEAT, {}, body)).raise_for_code()

    async def unregister(self, address: str, client_id: str, *, producer: str = "", consumer: str = "") -> None:
        fields = {"clientID": client_id}
        if producer:
            fields["producerGroup"] = producer
        if consumer:
            fields["consumerGroup"] = consumer
        (await self._invoke(address, RequestCode.UNREGISTER_CLIENT, fields)).raise_for_code()

    async def check_subscription(self, address: str, client_id: str, group: str, item: Subscription) -> None:
        """Asks whether the broker can serve this filter (SQL92 may be off, or the expression wrong)."""
        body = fastjson.dumps({"clientId": client_id, "group": group, "subscriptionData": subscription_json(item)})
        (await self._invoke(address, RequestCode.CHECK_CLIENT_CONFIG, {}, body)).raise_for_code()

    async def lock(self, address: str, group: str, client_id: str, queues: Iterable[QueueRef]) -> set[QueueRef]:
        """Returns the queues that this client now holds alone."""
        reply = await self._invoke(
            address, RequestCode.LOCK_BATCH_MQ, {}, _lock_body(group, client_id, queues), timeout_ms=1000
        )
        granted = bodies.load_object(reply.raise_for_code().body, "lock answer").get("lockOKMQSet")
        return {bodies.queue_of(item) for item in bodies.list_of(granted, "lockOKMQSet")}

    async def unlock(self, address: str, group: str, client_id: str, queues: Iterable[QueueRef]) -> None:
        body = _lock_body(group, client_id, queues)
        (await self._invoke(address, RequestCode.UNLOCK_BATCH_MQ, {}, body, timeout_ms=1000)).raise_for_code()

    async def send_back(
        self, address: str, group: str, *, physical_offset: int, message_id: str, topic: str, level: int, max_times: int
    ) -> None:
        """Gives a message back to the broker for a later retry (level 0: it chooses; -1: dead letter queue)."""
        fields = {
            "offset": str(physical_offset),
            "group": group,
            "delayLevel": str(level),
            "originMsgId": message_id,
            "originTopic": topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(max_times),
        }
        (await self._invoke(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields, timeout_ms=5000)).raise_for_code()

    # messages

    async def view(self, address: str, physical_offset: int, topic: str = "") -> bytes:
        """Returns the raw record at a physical offset."""
        fields = {"offset": str(physical_offset)}
        if topic:
            fields["topic"] = topic
        reply = await self._invoke(address, RequestCode.VIEW_MESSAGE_BY_ID, fields)
        return bytes(reply.raise_for_code().body)

    async def query(
        self, address: str, topic: str, key: str, *, count_max: int, begin_ms: int, end_ms: int, unique: bool
    ) -> bytes:
        """Returns the raw records under a key; empty when there are none."""
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": str(count_max),
            "beginTimestamp": str(begin_ms),
            "endTimestamp": str(end_ms),
        }
        if unique:
            fields["_UNIQUE_KEY_QUERY"] = "true"
        reply = await self._invoke(address, RequestCode.QUERY_MESSAGE, fields, timeout_ms=15_000)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return b""
        return bytes(reply.raise_for_code().body)


def _queue_fields(queue: QueueRef) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id)}


def _lock_body(group: str, client_id: str, queues: Iterable[QueueRef]) -> bytes:
    return fastjson.dumps(bodies.lock_request_json(group, client_id, queues))


def by_broker(queues: Sequence[QueueRef]) -> dict[str, list[QueueRef]]:
    """Returns the queues grouped by the broker that has them."""
    groups: dict[str, list[QueueRef]] = {}
    for queue in queues:
        groups.setdefault(queue.broker_name, []).append(queue)
    return groups
