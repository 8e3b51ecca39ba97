"""JSON bodies: each noun to and from the dict that stands for it on the wire.

`*_json` gives a dict for `fastjson.dumps*`, members in fastjson's (alphabetical) order; `*_of` reads one, tolerant of
what other clients send: numbers as strings, enums by ordinal, missing or null members. A value that can't be read
raises MalformedBody with the member's name. Heartbeats have their own file, `heartbeat.py`; the registration body too,
`register.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tandemq.codec import fastjson
from tandemq.codec.fastjson import ObjectKey
from tandemq.errors import MalformedBody
from tandemq.model.route import BrokerGroup, QueueData, TopicRoute
from tandemq.model.topic import DataVersion, QueueRef, SubscriptionGroupConfig, TopicConfig

Json = Mapping[str, Any]


# Reading members -----------------------------------------------------------------------------------------------------


LONG_MAX = (1 << 63) - 1
TOLERANT_SIZE_MAX = 32 * 1024
"""Bytes of a request in fastjson's own dialect, which is read character by character: some 20 ms of the loop's time."""

REQUEST_SIZE_MAX = 1 << 20
"""Bytes of a request's JSON. Objects of three bytes each take 64 in memory, so that more would be a weapon."""


def object_of(value: Any, what: str) -> dict[Any, Any]:
    """Returns `value` if it is a JSON object ({} for null); raises MalformedBody otherwise."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedBody(f"{what}: a JSON object was expected, got {type(value).__name__}")
    return value


def list_of(value: Any, what: str, count_max: int | None = None) -> list[Any]:
    """Returns `value` if it is a JSON array ([] for null) of at most so many items; raises MalformedBody otherwise."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedBody(f"{what}: a JSON array was expected, got {type(value).__name__}")
    if count_max is not None and len(value) > count_max:
        raise MalformedBody(f"{what}: {len(value)} items, the limit is {count_max}")
    return value


def int_of(found: Mapping[str, Any], name: str, default: int = 0) -> int:
    value = found.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise MalformedBody(f"{name}={str(value)[:40]!r}: a whole number was expected") from None
    if not -LONG_MAX - 1 <= number <= LONG_MAX:
        raise MalformedBody(f"{name}={str(value)[:40]}: a whole number of 64 bits (at most {LONG_MAX}) was expected")
    return number


def bool_of(found: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = found.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return value.lower() in ("true", "1")
    return bool(value)


def text_of(found: Mapping[str, Any], name: str, default: str = "") -> str:
    value = found.get(name)
    if value is None:
        return default
    if isinstance(value, (dict, list)):
        raise MalformedBody(f"{name}: text was expected, got a JSON {type(value).__name__}")
    return str(value)


def texts_of(value: Any, what: str) -> tuple[str, ...]:
    return tuple(str(item) for item in list_of(value, what))


def text_map_of(value: Any, what: str) -> dict[str, str]:
    return {str(k): str(v) for k, v in object_of(value, what).items() if v is not None}


def int_map_of(value: Any, what: str) -> dict[int, Any]:
    """Returns a map with integer keys, which may be quoted or not."""
    try:
        return {int(k): v for k, v in object_of(value, what).items()}
    except (TypeError, ValueError, OverflowError):
        raise MalformedBody(f"{what}: the keys must be whole numbers") from None


# Versions, topics, groups --------------------------------------------------------------------------------------------


def data_version_json(version: DataVersion) -> dict[str, Any]:
    return {"counter": version.counter, "stateVersion": version.state_version, "timestamp": version.timestamp}


def data_version_of(value: Any) -> DataVersion:
    found = object_of(value, "dataVersion")
    return DataVersion(int_of(found, "stateVersion"), int_of(found, "timestamp"), int_of(found, "counter"))


def topic_config_json(topic: TopicConfig) -> dict[str, Any]:
    return {
        "attributes": dict(topic.attributes),
        "order": topic.order,
        "perm": topic.perm,
        "readQueueNums": topic.read_queues,
        "topicFilterType": topic.filter_type,
        "topicName": topic.name,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queues,
    }


def topic_config_of(value: Any, name: str = "") -> TopicConfig:
    """Reads a TopicConfig; `name` is the key it was found under, used when the object itself has none."""
    found = object_of(value, "topicConfig")
    return TopicConfig(
        name=text_of(found, "topicName", name),
        read_queues=int_of(found, "readQueueNums", 16),
        write_queues=int_of(found, "writeQueueNums", 16),
        perm=int_of(found, "perm", 6),
        filter_type=enum_of(found, "topicFilterType", ("SINGLE_TAG", "MULTI_TAG"), "SINGLE_TAG"),
        sys_flag=int_of(found, "topicSysFlag"),
        order=bool_of(found, "order"),
        attributes=text_map_of(found.get("attributes"), "attributes"),
    )


def topic_table_json(topics: Iterable[TopicConfig], version: DataVersion) -> dict[str, Any]:
    """Returns a TopicConfigSerializeWrapper: GET_ALL_TOPIC_CONFIG's body and config/topics.json."""
    return {
        "dataVersion": data_version_json(version),
        "topicConfigTable": {topic.name: topic_config_json(topic) for topic in topics},
    }


def topic_table_of(value: Any) -> tuple[dict[str, TopicConfig], DataVersion]:
    found = object_of(value, "topicConfigSerializeWrapper")
    table = object_of(found.get("topicConfigTable"), "topicConfigTable")
    topics = {str(name): topic_config_of(config, str(name)) for name, config in table.items()}
    return topics, data_version_of(found.get("dataVersion"))


def group_config_json(group: SubscriptionGroupConfig) -> dict[str, Any]:
    return {
        "attributes": dict(group.attributes),
        "brokerId": group.broker_id,
        "consumeBroadcastEnable": group.consume_broadcast_enable,
        "consumeEnable": group.consume_enable,
        "consumeFromMinEnable": group.consume_from_min_enable,
        "consumeMessageOrderly": group.consume_message_orderly,
        "consumeTimeoutMinute": group.consume_timeout_minutes,
        "groupName": group.name,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": group.group_sys_flag,
        "notifyConsumerIdsChangedEnable": group.notify_consumer_ids_changed,
        "retryMaxTimes": group.retry_max_times,
        "retryQueueNums": group.retry_queues,
        "whichBrokerWhenConsumeSlowly": group.which_broker_when_consume_slowly,
    }


def group_config_of(value: Any, name: str = "") -> SubscriptionGroupConfig:
    found = object_of(value, "subscriptionGroupConfig")
    return SubscriptionGroupConfig(
        name=text_of(found, "groupName", name),
        consume_enable=bool_of(found, "consumeEnable", True),
        consume_from_min_enable=bool_of(found, "consumeFromMinEnable", True),
        consume_broadcast_enable=bool_of(found, "consumeBroadcastEnable", True),
        consume_message_orderly=bool_of(found, "consumeMessageOrderly"),
        retry_queues=int_of(found, "retryQueueNums", 1),
        retry_max_times=int_of(found, "retryMaxTimes", 16),
        broker_id=int_of(found, "brokerId"),
        which_broker_when_consume_slowly=int_of(found, "whichBrokerWhenConsumeSlowly", 1),
        notify_consumer_ids_changed=bool_of(found, "notifyConsumerIdsChangedEnable", True),
        group_sys_flag=int_of(found, "groupSysFlag"),
        consume_timeout_minutes=int_of(found, "consumeTimeoutMinute", 15),
        attributes=text_map_of(found.get("attributes"), "attributes"),
    )


def group_table_of(value: Any) -> tuple[dict[str, SubscriptionGroupConfig], DataVersion]:
    found = object_of(value, "subscriptionGroupWrapper")
    table = object_of(found.get("subscriptionGroupTable"), "subscriptionGroupTable")
    groups = {str(name): group_config_of(config, str(name)) for name, config in table.items()}
    return groups, data_version_of(found.get("dataVersion"))


def offset_table_of(value: Any) -> tuple[dict[str, dict[int, int]], DataVersion]:
    found = object_of(value, "consumerOffset")
    table = object_of(found.get("offsetTable"), "offsetTable")
    return {str(key): _int_values(queues, str(key)) for key, queues in table.items()}, data_version_of(
        found.get("dataVersion")
    )


def offsets_of(value: Any, key: str) -> dict[int, int | None]:
    """Returns queue id -> offset of one entry of the offset table, None for a queue that is gone."""
    found = int_map_of(value, key)
    gone = [queue for queue, offset in found.items() if offset is None]
    return {**_int_values({q: o for q, o in found.items() if o is not None}, key), **dict.fromkeys(gone)}


def _int_values(value: Any, what: str) -> dict[int, int]:
    try:
        return {key: int(member) for key, member in int_map_of(value, what).items()}
    except (TypeError, ValueError, OverflowError):
        raise MalformedBody(f"{what}: the values must be whole numbers") from None


# Queues --------------------------------------------------------------------------------------------------------------


def queue_json(queue: QueueRef) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queue_of(value: Any) -> QueueRef:
    found = object_of(value, "messageQueue") if not isinstance(value, ObjectKey) else value
    return QueueRef(text_of(found, "topic"), text_of(found, "brokerName"), int_of(found, "queueId"))


def queue_key(queue: QueueRef) -> ObjectKey:
    """Returns a queue as the key of a JSON map: the object itself, which is what Java reads and writes."""
    return ObjectKey(queue_json(queue))


def queue_table_json(table: Mapping[QueueRef, Any]) -> dict[ObjectKey, Any]:
    """Returns the map<MessageQueue, ...> of ConsumeStats, TopicStatsTable and ResetOffsetBody."""
    return {queue_key(queue): value for queue, value in table.items()}


def queue_table_of(value: Any) -> dict[QueueRef, Any]:
    """Reads map<MessageQueue, ...>, or the list form [{brokerName, queueId, topic, offset}] sent to C++ clients."""
    if isinstance(value, list):
        return {queue_of(item): int_of(item, "offset") for item in value}
    return {queue_of(key): member for key, member in object_of(value, "offsetTable").items()}


# Routes --------------------------------------------------------------------------------------------------------------


def queue_data_json(queues: QueueData) -> dict[str, Any]:
    return {
        "brokerName": queues.broker_name,
        "perm": queues.perm,
        "readQueueNums": queues.read_queues,
        "topicSysFlag": queues.topic_sys_flag,
        "writeQueueNums": queues.write_queues,
    }


def queue_data_of(value: Any) -> QueueData:
    found = object_of(value, "queueData")
    return QueueData(
        broker_name=text_of(found, "brokerName"),
        read_queues=int_of(found, "readQueueNums"),
        write_queues=int_of(found, "writeQueueNums"),
        perm=int_of(found, "perm"),
        topic_sys_flag=int_of(found, "topicSysFlag"),
    )


def broker_group_json(group: BrokerGroup) -> dict[str, Any]:
    return {
        "brokerAddrs": dict(sorted(group.addresses.items())),
        "brokerName": group.name,
        "cluster": group.cluster,
        "enableActingMaster": group.acting_master,
    }


def broker_group_of(value: Any) -> BrokerGroup:
    found = object_of(value, "brokerData")
    addresses = int_map_of(found.get("brokerAddrs"), "brokerAddrs")
    return BrokerGroup(
        cluster=text_of(found, "cluster"),
        name=text_of(found, "brokerName"),
        addresses={broker_id: str(address) for broker_id, address in addresses.items()},
        acting_master=bool_of(found, "enableActingMaster"),
    )


def topic_route_json(route: TopicRoute) -> dict[str, Any]:
    """Returns TopicRouteData; dump it with quoted broker ids for new clients, with `dumps_unquoted` for old ones."""
    return {
        "brokerDatas": [broker_group_json(group) for group in route.groups],
        "filterServerTable": {},
        "orderTopicConf": route.order_conf or None,
        "queueDatas": [queue_data_json(queues) for queues in route.queues],
    }


def topic_route_of(value: Any) -> TopicRoute:
    found = object_of(value, "topicRouteData")
    return TopicRoute(
        queues=tuple(queue_data_of(item) for item in list_of(found.get("queueDatas"), "queueDatas")),
        groups=tuple(broker_group_of(item) for item in list_of(found.get("brokerDatas"), "brokerDatas")),
        order_conf=text_of(found, "orderTopicConf"),
    )


def cluster_info_json(groups: Iterable[BrokerGroup], clusters: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Returns GET_BROKER_CLUSTER_INFO's body (dump unquoted)."""
    return {
        "brokerAddrTable": {group.name: broker_group_json(group) for group in groups},
        "clusterAddrTable": {cluster: sorted(names) for cluster, names in clusters.items()},
    }


def cluster_info_of(value: Any) -> tuple[dict[str, BrokerGroup], dict[str, tuple[str, ...]]]:
    found = object_of(value, "clusterInfo")
    groups = object_of(found.get("brokerAddrTable"), "brokerAddrTable")
    clusters = object_of(found.get("clusterAddrTable"), "clusterAddrTable")
    return (
        {str(name): broker_group_of(group) for name, group in groups.items()},
        {str(name): texts_of(names, "clusterAddrTable") for name, names in clusters.items()},
    )


# Small ones ----------------------------------------------------------------------------------------------------------


def lock_request_json(group: str, client_id: str, queues: Iterable[QueueRef]) -> dict[str, Any]:
    """Returns the body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""
    return {
        "clientId": client_id,
        "consumerGroup": group,
        "mqSet": [queue_json(q) for q in queues],
        "onlyThisBroker": False,
    }


def lock_request_of(value: Any, count_max: int | None = None) -> tuple[str, str, list[QueueRef]]:
    """Returns (group, client id, queues); C++ leaves out an empty mqSet."""
    found = object_of(value, "lockBatchRequest")
    queues = [queue_of(item) for item in list_of(found.get("mqSet"), "mqSet", count_max)]
    return text_of(found, "consumerGroup"), text_of(found, "clientId"), queues


def kv_table_json(table: Mapping[str, str]) -> dict[str, Any]:
    return {"table": dict(table)}


def kv_table_of(value: Any) -> dict[str, str]:
    return text_map_of(object_of(value, "kvTable").get("table"), "table")


def load_object(body: bytes | memoryview, what: str) -> dict[Any, Any]:
    """Returns the JSON object in a body; an empty body is an empty object."""
    return object_of(fastjson.loads(body), what) if len(body) else {}


def load_request(body: bytes | memoryview, what: str, size_max: int = REQUEST_SIZE_MAX) -> dict[Any, Any]:
    """Returns the JSON object in a request's body: as `load_object`, with a bound on the work it may cause."""
    if len(body) > size_max:
        raise MalformedBody(f"{what} of {len(body)} bytes, the limit is {size_max}")
    return object_of(fastjson.loads(body, tolerant_size_max=TOLERANT_SIZE_MAX), what) if len(body) else {}


def enum_of(found: Mapping[str, Any], name: str, members: tuple[str, ...], default: str) -> str:
    """Returns an enum member by name or ordinal (C++), and the default for a value unknown to us."""
    value = found.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(members):
        return members[value]
    if isinstance(value, str):
        if value in members:
            return value
        if value.isdecimal() and int(value) < len(members):
            return members[int(value)]
    return default
