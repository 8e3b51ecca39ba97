"""Topics, subscription groups, their names and permissions, and the version stamp of a table."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
TRANS_GROUP = "CID_RMQ_SYS_TRANS"
INTERNAL_PREFIX = "rmq_sys_"
INTERNAL_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""Topics that brokers keep for themselves, besides those with INTERNAL_PREFIX and the reply topic of the cluster."""

TOPIC_LENGTH_MAX = 127
RETRY_TOPIC_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 120
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+\Z")


def topic_name_problem(name: str) -> str | None:
    """Returns why this can't be a topic, or None. The only grammar; checked before a name touches the file system."""
    limit = RETRY_TOPIC_LENGTH_MAX if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_LENGTH_MAX
    return _name_problem("topic", name, limit)


def group_name_problem(name: str) -> str | None:
    """Returns why this can't be a consumer or producer group, or None."""
    return _name_problem("group", name, GROUP_LENGTH_MAX)


def _name_problem(kind: str, name: str, limit: int) -> str | None:
    if not name.strip():
        return f"the {kind} name is blank"
    if len(name) > limit:
        return f"the {kind} name has {len(name)} characters, the limit is {limit}: {name[:40]!r}…"
    if not _NAME.match(name):
        return f"the {kind} name {name[:60]!r} has characters other than letters, digits, %, |, _ and -"
    return None


def reply_topic(cluster: str) -> str:
    """Returns the topic that answers to requests of a cluster's clients go to."""
    return f"{cluster}_REPLY_TOPIC"


def is_internal_topic(name: str, cluster: str) -> bool:
    """Returns whether a topic is a broker's own: its messages are written and read by the requests made for them."""
    return name in INTERNAL_TOPICS or name.startswith(INTERNAL_PREFIX) or name == reply_topic(cluster)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Stamp of a replicated table: equal means nothing to copy; ordered by state version, counter, time."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int, state_version: int | None = None) -> "DataVersion":
        return DataVersion(self.state_version if state_version is None else state_version, now_ms, self.counter + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic as brokers keep it.

    await admin.create_topic(TopicConfig(name="orders", read_queues=8, write_queues=8))
    """

    name: str
    read_queues: int = 8
    write_queues: int = 8
    perm: int = PERM_READ | PERM_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig:
    """A consumer group as brokers keep it.

    await admin.create_group(SubscriptionGroupConfig(name="printers", retry_max_times=3))
    """

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed: bool = True
    group_sys_flag: int = 0
    consume_timeout_minutes: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class QueueRef:
    """One queue of a topic on a broker group: RocketMQ's MessageQueue.

    await producer.send(Message(topic="orders", body=b"paid"), queue=QueueRef("orders", "broker-a", 3))
    """

    topic: str
    broker_name: str
    queue_id: int
