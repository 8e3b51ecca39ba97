"""Every option of the sources and the sink: name, meaning, range; parsed and checked once, on the driver.

Names are those of Spark's Kafka connector where it has the option. A wrong or unknown option is an error that names it,
never a silent default. Planning and reading get the typed objects, not the option map.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from tandemq.errors import ConfigError
from tandemq.model.topic import QueueRef, topic_name_problem
from tandemq.settings import Setting, check, parse_text, setting, settings_of
from tandemq.spark.columns import DEFAULT_COLUMNS, check_name

_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "__partition_columns"}
"""Options that Spark itself adds or reads."""

_COPIES = re.compile(r"([1-9][0-9]*|majority|all)(:durable)?")

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_NUMBER, LATEST_NUMBER = -2, -1
"""The numbers that stand for earliest and latest in offset JSON."""


class ReadFrom(Enum):
    SLAVE = "slave"
    MASTER = "master"
    ANY = "any"


class Mode(Enum):
    FAILFAST = "failfast"
    PERMISSIVE = "permissive"


class Order(Enum):
    PHYSICAL = "physical"
    QUEUE = "queue"


class UpTo(Enum):
    CONFIRMED = "confirmed"
    WRITTEN = "written"


class Prefetch(Enum):
    AUTO = "auto"
    ALWAYS = "true"
    NEVER = "false"


class Missing(Enum):
    """What to do when no message was stored at or after a starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


class Delivery(Enum):
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class Compression(Enum):
    NONE = "none"
    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, kw_only=True)
class SelectOptions:
    """Which messages, how they are split and decoded: common to both sources."""

    subscribe: str = setting("subscribe", "", "Topics, separated by commas.")
    subscribe_pattern: str = setting(
        "subscribePattern", "", "A regular expression; every topic it matches whole is read."
    )
    assign: str = setting("assign", "", 'Exact queues, JSON: {"topic": [0, 1]} or {"broker/topic": [0]}.')
    tags: str = setting("tags", "", "Only messages with one of these tags, separated by `||` or commas.")
    columns: str = setting(
        "columns", "", "Only these columns, separated by commas: what is not asked for is not built. A schema does the "
            "same; this also tells Spark which of them are never null, so prefer it.",
    )  # fmt: skip
    keys: str = setting("keys", "", "Only messages with one of these keys, separated by commas.")
    include_system_topics: bool = setting(
        "includeSystemTopics", False, "Also the broker's own topics (delayed, half and op messages, trace)."
    )
    starting_offsets: str = setting(
        "startingOffsets",
        "",
        "earliest, latest, or JSON per topic and queue (-2 = earliest, -1 = latest). Default: earliest for batch, "
        "latest for streams.",
    )
    ending_offsets: str = setting("endingOffsets", LATEST, "latest, or JSON per topic and queue. Batch only.")
    starting_timestamp: int = setting(
        "startingTimestamp",
        -1,
        "From the first message stored at or after this time.",
        unit="ms since 1970",
        minimum=-1,
    )
    ending_timestamp: int = setting(
        "endingTimestamp", -1, "Up to the first message stored at or after this time. Batch only.",
        unit="ms since 1970", minimum=-1,
    )  # fmt: skip
    starting_offsets_by_timestamp: str = setting(
        "startingOffsetsByTimestamp", "", 'As startingTimestamp, per queue: {"topic": {"0": 1700000000000}}.'
    )
    starting_offsets_by_timestamp_strategy: Missing = setting(
        "startingOffsetsByTimestampStrategy", Missing.LATEST, "If nothing was stored since that time: latest, or error."
    )
    fail_on_data_loss: bool = setting(
        "failOnDataLoss",
        True,
        "Fail when messages were deleted before they were read; false reads on from the first left.",
    )
    min_partitions: int = setting("minPartitions", 0, "Split queues until there are at least so many tasks.", minimum=0)
    min_records_per_partition: int = setting(
        "minRecordsPerPartition", 10_000, "Queues with little to read share a task up to this many messages; 0 = a "
            "task each.",
        minimum=0,
    )  # fmt: skip
    max_records_per_partition: int = setting(
        "maxRecordsPerPartition", 0, "No task reads more messages than this; 0 = no limit.", minimum=0
    )
    max_offsets_per_trigger: int = setting(
        "maxOffsetsPerTrigger",
        0,
        "Messages of one micro-batch at most, shared among queues by what each has.",
        minimum=0,
    )
    max_bytes_per_trigger: int = setting(
        "maxBytesPerTrigger", 0, "Bytes of one micro-batch, about; 0 = no limit.", unit="bytes", minimum=0
    )
    min_offsets_per_trigger: int = setting(
        "minOffsetsPerTrigger",
        0,
        "Wait for so many messages before a micro-batch starts, up to maxTriggerDelay.",
        minimum=0,
    )
    max_trigger_delay: str = setting(
        "maxTriggerDelay", "15m", "Longest wait for minOffsetsPerTrigger: 500ms, 30s, 15m, 1h."
    )
    mode: Mode = setting(
        "mode", Mode.FAILFAST, "Damaged records: failfast = error that names the place; permissive = skip and count."
    )
    verify_crc: bool = setting("verifyCrc", False, "Check the CRC-32 of every body (about 1 µs per message).")
    rows_per_batch: int = setting(
        "rowsPerBatch",
        20_000,
        "Rows of one Arrow batch at most; fewer where these are more than 4 MiB.",
        minimum=1,
        maximum=1_000_000,
    )
    prefetch: Prefetch = setting(
        "prefetch",
        Prefetch.AUTO,
        "Decode the next batch in a thread while Spark takes the last one; auto: when a processor is idle.",
    )

    def __post_init__(self) -> None:
        check(self)

    def checked(self) -> "SelectOptions":
        """Rules that concern several options, or the text inside one."""
        chosen = [name for name in ("subscribe", "subscribe_pattern", "assign") if getattr(self, name)]
        if len(chosen) > 1:
            raise ConfigError("of subscribe, subscribePattern and assign only one may be given")
        for topic in self.topics:
            problem = topic_name_problem(topic)
            if problem:
                raise ConfigError(f"subscribe: {problem}")
        for column in self.wanted_columns:
            check_name(column)
        if self.subscribe_pattern:
            _regex("subscribePattern", self.subscribe_pattern)
        if self.assign:
            _ = self.assigned
        starts = [n for n in ("starting_offsets", "starting_offsets_by_timestamp") if getattr(self, n)]
        if self.starting_timestamp >= 0:
            starts.append("starting_timestamp")
        if len(starts) > 1:
            raise ConfigError(
                "of startingOffsets, startingTimestamp and startingOffsetsByTimestamp only one may be given"
            )
        if self.ending_timestamp >= 0 and self.ending_offsets != LATEST:
            raise ConfigError("of endingOffsets and endingTimestamp only one may be given")
        offsets_of(self.starting_offsets or EARLIEST, "startingOffsets")
        if self.ending_offsets == EARLIEST:
            raise ConfigError("endingOffsets=earliest: nothing could be read; give latest or JSON")
        offsets_of(self.ending_offsets, "endingOffsets")
        offsets_of(self.starting_offsets_by_timestamp or LATEST, "startingOffsetsByTimestamp", negatives=False)
        milliseconds("maxTriggerDelay", self.max_trigger_delay)
        if 0 < self.max_offsets_per_trigger < self.min_offsets_per_trigger:
            raise ConfigError(
                f"minOffsetsPerTrigger={self.min_offsets_per_trigger} must not be above "
                f"maxOffsetsPerTrigger={self.max_offsets_per_trigger}"
            )
        return self

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(topic.strip() for topic in self.subscribe.split(",") if topic.strip())

    @property
    def assigned(self) -> dict[str, frozenset[int]]:
        """topic or broker/topic -> queue ids."""
        given = _json("assign", self.assign)
        if not isinstance(given, dict) or not given:
            raise ConfigError(f'assign={self.assign!r}: JSON like {{"topic": [0, 1]}} expected')
        for topic, queues in given.items():
            if not isinstance(queues, list) or not queues or not all(type(q) is int and q >= 0 for q in queues):
                raise ConfigError(f"assign: {topic!r} needs a list of queue numbers, not {queues!r}")
        return {topic: frozenset(queues) for topic, queues in given.items()}

    @property
    def wanted_columns(self) -> tuple[str, ...]:
        return tuple(column.strip() for column in self.columns.split(",") if column.strip()) or DEFAULT_COLUMNS

    @property
    def wanted_tags(self) -> frozenset[str]:
        if self.tags.strip() == "*":
            return frozenset()
        return frozenset(tag.strip() for tag in re.split(r"\|\||,", self.tags) if tag.strip())

    @property
    def wanted_keys(self) -> frozenset[str]:
        return frozenset(key.strip() for key in self.keys.split(",") if key.strip())

    def selects(self, topic: str, *, system: bool) -> bool:
        """Whether a topic is read at all."""
        if self.subscribe:
            return topic in self.topics
        if self.subscribe_pattern:
            return _regex("subscribePattern", self.subscribe_pattern).fullmatch(topic) is not None
        if self.assign:
            return any(name == topic or name.endswith(f"/{topic}") for name in self.assigned)
        return self.include_system_topics or not system

    def selects_queue(self, queue: QueueRef) -> bool:
        if not self.assign:
            return True
        assigned = self.assigned
        return any(
            queue.queue_id in assigned.get(name, ()) for name in (queue.topic, f"{queue.broker_name}/{queue.topic}")
        )


@dataclass(frozen=True, kw_only=True)
class ConnectOptions:
    """How to reach the cluster."""

    nameserver: str = setting(
        "nameserver", "", "Name servers, `;`-separated: host:port;host:port.", aliases=("namesrvAddr",)
    )
    access_key: str = setting("accessKey", "", "For clusters with access control.")
    secret_key: str = setting("secretKey", "", "For clusters with access control; never shown.")
    request_timeout_ms: int = setting(
        "requestTimeoutMs", 10_000, "Longest wait for one answer of a broker.", unit="ms", minimum=100
    )
    retries: int = setting(
        "retries", 5, "Tries per request when a broker is gone: the next one may be another member.", minimum=0
    )
    retry_interval_ms: int = setting(
        "retryIntervalMs", 500, "Pause between tries, doubled each time.", unit="ms", minimum=1
    )


@dataclass(frozen=True, kw_only=True)
class PullOptions(SelectOptions, ConnectOptions):
    """`format("rocketmq")` as a source."""

    read_from: ReadFrom = setting(
        "readFrom", ReadFrom.SLAVE, "slave: a slave if one is in sync, else the master; master; any: whoever answers."
    )
    slave_lag_max_bytes: int = setting(
        "slaveMaxLagBytes",
        256 << 20,
        "A slave further behind than this does not count as in sync.",
        unit="bytes",
        minimum=0,
    )
    group_id: str = setting(
        "groupId", "", "Consumer group whose progress tools should show; no rebalancing takes place."
    )
    commit_group_offsets: bool = setting(
        "commitGroupOffsets", False, "Commit the offsets of completed micro-batches to groupId."
    )
    pull_size: int = setting(
        "pullSize", 4096, "Messages asked for in one request; brokers have their own limits.", minimum=1
    )
    pull_depth: int = setting("pullDepth", 4, "Requests of one task that are under way at once.", minimum=1, maximum=64)

    def checked(self) -> "PullOptions":
        SelectOptions.checked(self)
        if not self.nameserver:
            raise ConfigError("nameserver: missing; give host:port of a name server (several with `;`)")
        if not (self.subscribe or self.subscribe_pattern or self.assign):
            raise ConfigError("one of subscribe, subscribePattern or assign must say what to read")
        if self.commit_group_offsets and not self.group_id:
            raise ConfigError("commitGroupOffsets=true needs groupId")
        return self


@dataclass(frozen=True, kw_only=True)
class FileOptions(SelectOptions):
    """`format("rocketmq-commitlog")`."""

    path: str = setting("path", "", "Store directories (with commitlog/ in them), comma-separated; globs allowed.")
    order: Order = setting(
        "order",
        Order.PHYSICAL,
        "physical: as stored, fastest; queue: each queue in its order, through the consume queues.",
    )
    read_up_to: UpTo = setting(
        "readUpTo",
        UpTo.CONFIRMED,
        "confirmed: what can't vanish any more, where the store knows it; written: everything whole.",
    )
    broker_name: str = setting("brokerName", "", "Value of the `broker` column; default: the store directory's name.")
    max_bytes_per_partition: int = setting(
        "maxBytesPerPartition", 256 << 20, "Physical order: log bytes of one task; a task never spans segments.",
        unit="bytes", minimum=1 << 16,
    )  # fmt: skip

    def checked(self) -> "FileOptions":
        SelectOptions.checked(self)
        if not self.path:
            raise ConfigError("path: missing; give a store directory, e.g. .load('/data/broker-a/store')")
        if self.order is Order.PHYSICAL:
            for name, key in (
                ("assign", "assign"), ("max_records_per_partition", "maxRecordsPerPartition"),
                ("max_offsets_per_trigger", "maxOffsetsPerTrigger"),
                ("min_offsets_per_trigger", "minOffsetsPerTrigger"),
                ("starting_offsets_by_timestamp", "startingOffsetsByTimestamp"),
            ):  # fmt: skip
                if getattr(self, name):
                    raise ConfigError(f"{key} counts queue offsets and needs order=queue; physical order counts bytes")
        return self


@dataclass(frozen=True, kw_only=True)
class SinkOptions(ConnectOptions):
    """`format("rocketmq")` as a sink."""

    topic: str = setting("topic", "", "Topic of every message; without it the data must have a `topic` column.")
    delivery: Delivery = setting(
        "delivery", Delivery.AT_LEAST_ONCE,
        "at_least_once: repeats carry the same UNIQ_KEY; exactly_once: the broker refuses repeats, or transactions.",
    )  # fmt: skip
    transactional: bool = setting(
        "transactional",
        False,
        "exactly_once by transactional messages even where the broker can refuse repeats itself.",
    )
    transaction_timeout_seconds: int = setting(
        "transactionTimeoutSeconds", 86_400, "How long a broker keeps undecided half messages before it asks for them.",
        unit="s", minimum=60,
    )  # fmt: skip
    copies: str = setting(
        "copies",
        "",
        "Copies that must exist before a message counts as sent: 1, 2, majority, all; `:durable` behind it = copies "
        "on disk.",
    )
    sink_id: str = setting(
        "sinkId",
        "",
        "Name of this write in the messages' keys: a batch write repeated under the same name repeats its keys.",
    )
    producer_group: str = setting("producerGroup", "GID_TANDEMQ_SPARK", "Producer group of the sends.")
    compression: Compression = setting(
        "compression", Compression.NONE, "Compress bodies of compressOver bytes or more."
    )
    compress_over: int = setting("compressOver", 4096, "Smallest body that is compressed.", unit="bytes", minimum=0)
    batch_bytes: int = setting(
        "batchBytes", 1 << 20, "Bytes of one batch send; must stay below the broker's maxMessageSize.",
        unit="bytes", minimum=1024, maximum=64 << 20,
    )  # fmt: skip
    in_flight: int = setting("inFlight", 16, "Unanswered batch sends per broker.", minimum=1, maximum=1024)
    max_rate: int = setting("maxRate", 0, "Messages per second and task at most; 0 = no limit.", minimum=0)

    def checked(self) -> "SinkOptions":
        if not self.nameserver:
            raise ConfigError("nameserver: missing; give host:port of a name server (several with `;`)")
        if self.topic:
            problem = topic_name_problem(self.topic)
            if problem:
                raise ConfigError(f"topic: {problem}")
        if self.copies and not _COPIES.fullmatch(self.copies):
            raise ConfigError(
                f"copies={self.copies!r}: a number from 1 up, majority or all expected, `:durable` behind it optional"
            )
        return self

    def __post_init__(self) -> None:
        check(self)


Options = TypeVar("Options", PullOptions, FileOptions, SinkOptions)


def parse(kind: type[Options], given: Mapping[str, str]) -> Options:
    """The typed, checked options of one source or sink from Spark's (case-insensitive) option map."""
    known = _by_key(kind)
    values: dict[str, Any] = {}
    for key, text in given.items():
        found = known.get(key.lower())
        if found is None:
            if key.lower() in _SPARKS_OWN:
                continue
            raise ConfigError(_unknown_text(key, kind))
        values[found[0]] = parse_text(found[1], found[2], str(text))
    return kind(**values).checked()


def _by_key(kind: type) -> dict[str, tuple[str, Any, Setting]]:
    """Lower-case option name or alias -> (field name, field, setting)."""
    known = {}
    for name, (field, about) in settings_of(kind).items():
        for key in (about.key, *about.aliases):
            known[key.lower()] = (name, field, about)
    return known


def _unknown_text(key: str, kind: type) -> str:
    names = [about.key for _, about in settings_of(kind).values()]
    near = difflib.get_close_matches(key, names, 1, 0.6)
    return f"unknown option {key!r}" + (f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}")


def offsets_of(text: str, name: str, *, negatives: bool = True) -> str | dict[str, dict[int, int]]:
    """earliest, latest, or topic (or broker/topic) -> queue -> offset."""
    if text in (EARLIEST, LATEST):
        return text
    given = _json(name, text)
    if not isinstance(given, dict):
        raise ConfigError(f'{name}={text!r}: earliest, latest or JSON like {{"topic": {{"0": 100}}}} expected')
    result: dict[str, dict[int, int]] = {}
    for topic, queues in given.items():
        if type(queues) is int:  # physical order: {"store label": offset}
            result[topic] = {-1: queues}
            continue
        if not isinstance(queues, dict):
            raise ConfigError(f"{name}: {topic!r} needs an object of queue: offset, not {queues!r}")
        result[topic] = {}
        for queue, offset in queues.items():
            lowest = EARLIEST_NUMBER if negatives else 0
            if not str(queue).isdecimal() or type(offset) is not int or offset < lowest:
                raise ConfigError(f"{name}: {topic!r} queue {queue!r}: offset {offset!r} is no number from {lowest} up")
            result[topic][int(queue)] = offset
    return result


def milliseconds(name: str, text: str) -> int:
    """500ms, 30s, 15m, 1h."""
    match = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h)\s*", text)
    if not match:
        raise ConfigError(f"{name}={text!r}: a time like 500ms, 30s, 15m or 1h expected")
    return int(match[1]) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}[match[2]]


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r}: not JSON: {error}") from None


def _regex(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{name}={text!r}: no regular expression: {error}") from None


def described(kind: type) -> list[tuple[str, str, str]]:
    """(option, default, meaning) of every option, for the documents."""
    rows = []
    for field, about in settings_of(kind).values():
        default = field.default.value if isinstance(field.default, Enum) else field.default
        rows.append((about.key, str(default).lower() if isinstance(default, bool) else str(default), about.doc))
    return rows


__all__ = [
    "Compression", "Delivery", "FileOptions", "Missing", "Mode", "Order", "PullOptions", "ReadFrom", "SinkOptions",
    "UpTo", "described", "milliseconds", "offsets_of", "parse",
]  # fmt: skip
