"""Options that both sources share: which messages, from where to where, how they are split and decoded."""

import re
from dataclasses import dataclass
from enum import Enum

from tandemq.errors import ConfigError
from tandemq.model.topic import topic_name_problem
from tandemq.settings import check, setting
from tandemq.spark.columns import COLUMNS, DEFAULT_COLUMNS, HEADERS, KAFKA_COLUMNS
from tandemq.spark.options.texts import (
    EARLIEST,
    check_time,
    json_of,
    listed,
    milliseconds,
    offsets_of,
    regex_of,
    times_of,
)


class SchemaKind(Enum):
    """Whose columns a source or sink has."""

    ROCKETMQ = "rocketmq"
    KAFKA = "kafka"


class Mode(Enum):
    """What happens when a record is damaged."""

    FAILFAST = "failfast"
    PERMISSIVE = "permissive"


class Prefetch(Enum):
    """Whether the next batch is decoded while Spark takes the last one."""

    AUTO = "auto"
    ALWAYS = "true"
    NEVER = "false"


class WithoutMessages(Enum):
    """What to do when no message was stored at or after a starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, kw_only=True)
class SelectOptions:
    """Which messages are read, how they are split into tasks and decoded: common to both sources."""

    subscribe: str = setting("subscribe", "", "Topics, separated by commas.")
    subscribe_pattern: str = setting(
        "subscribePattern", "", "A regular expression; every topic it matches whole is read."
    )
    assign: str = setting("assign", "", 'Exact queues, JSON: {"topic": [0, 1]} or {"broker/topic": [0]}.')
    tags: str = setting("tags", "", "Only messages with one of these tags, separated by `||` or commas.")
    schema: SchemaKind = setting(
        "schema",
        SchemaKind.ROCKETMQ,
        "kafka: the columns of Kafka's source (key, value, topic, partition, offset, timestamp, timestampType, "
        "headers) instead of ours.",
    )
    include_headers: bool = setting(
        "includeHeaders", True, "schema=kafka: with the column `headers`, made of the properties."
    )
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
    ending_offsets: str = setting(
        "endingOffsets", "", "latest, or JSON per topic and queue. Batch only. Default: latest."
    )
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
    ending_offsets_by_timestamp: str = setting(
        "endingOffsetsByTimestamp", "", 'As endingTimestamp, per queue: {"topic": {"0": 1700000000000}}. Batch only.'
    )
    starting_offsets_by_timestamp_strategy: WithoutMessages = setting(
        "startingOffsetsByTimestampStrategy",
        WithoutMessages.LATEST,
        "If nothing was stored since that time: latest, or error.",
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

    def check_selection(self) -> None:
        """Raises ConfigError for rules that concern several options, or the text inside one."""
        chosen = [name for name in ("subscribe", "subscribe_pattern", "assign") if getattr(self, name)]
        if len(chosen) > 1:
            raise ConfigError("of subscribe, subscribePattern and assign only one may be given")
        for topic in self.topics:
            problem = topic_name_problem(topic)
            if problem:
                raise ConfigError(f"subscribe: {problem}")
        self._check_columns()
        if self.subscribe_pattern:
            regex_of("subscribePattern", self.subscribe_pattern)
        if self.assign:
            _ = self.assigned
        self._check_start()
        self._check_end()
        milliseconds("maxTriggerDelay", self.max_trigger_delay)
        if 0 < self.max_offsets_per_trigger < self.min_offsets_per_trigger:
            raise ConfigError(
                f"minOffsetsPerTrigger={self.min_offsets_per_trigger} must not be above "
                f"maxOffsetsPerTrigger={self.max_offsets_per_trigger}"
            )

    def _check_columns(self) -> None:
        known = self.known_columns
        for number, column in enumerate(wanted := listed(self.columns)):
            if column not in known:
                raise ConfigError(f"columns: no message has {column!r}; choose from {', '.join(known)}")
            if column in wanted[:number]:
                raise ConfigError(f"columns={self.columns!r}: {column!r} is there twice")

    def _check_start(self) -> None:
        starts = [n for n in ("starting_offsets", "starting_offsets_by_timestamp") if getattr(self, n)]
        if self.starting_timestamp >= 0:
            starts.append("starting_timestamp")
            check_time("startingTimestamp", self.starting_timestamp)
        if len(starts) > 1:
            raise ConfigError(
                "of startingOffsets, startingTimestamp and startingOffsetsByTimestamp only one may be given"
            )
        if self.starting_offsets:
            offsets_of(self.starting_offsets, "startingOffsets")
        if self.starting_offsets_by_timestamp:
            times_of(self.starting_offsets_by_timestamp, "startingOffsetsByTimestamp")

    def _check_end(self) -> None:
        ends = [name for name in ("ending_offsets", "ending_offsets_by_timestamp") if getattr(self, name)]
        if self.ending_timestamp >= 0:
            ends.append("ending_timestamp")
            check_time("endingTimestamp", self.ending_timestamp)
            if self.starting_timestamp > self.ending_timestamp:
                raise ConfigError(
                    f"startingTimestamp={self.starting_timestamp} must not be after "
                    f"endingTimestamp={self.ending_timestamp}"
                )
        if len(ends) > 1:
            raise ConfigError("of endingOffsets, endingTimestamp and endingOffsetsByTimestamp only one may be given")
        if self.ending_offsets == EARLIEST:
            raise ConfigError("endingOffsets=earliest: nothing could be read; give latest or JSON")
        if self.ending_offsets:
            offsets_of(self.ending_offsets, "endingOffsets")
        if self.ending_offsets_by_timestamp:
            times_of(self.ending_offsets_by_timestamp, "endingOffsetsByTimestamp")

    def check_stream(self) -> None:
        """Raises ConfigError for options that only a batch can have."""
        given = {
            "endingOffsets": self.ending_offsets,
            "endingTimestamp": str(self.ending_timestamp) if self.ending_timestamp >= 0 else "",
            "endingOffsetsByTimestamp": self.ending_offsets_by_timestamp,
        }
        for name, value in given.items():
            if value:
                raise ConfigError(f"{name}={value!r}: a stream has no end; it is for batch reads (spark.read)")

    @property
    def topics(self) -> tuple[str, ...]:
        return listed(self.subscribe)

    @property
    def assigned(self) -> dict[str, frozenset[int]]:
        """topic or broker/topic -> queue ids."""
        given = json_of("assign", self.assign)
        if not isinstance(given, dict) or not given:
            raise ConfigError(f'assign={self.assign!r}: JSON like {{"topic": [0, 1]}} expected')
        for topic, queues in given.items():
            if not isinstance(queues, list) or not queues or not all(type(q) is int and q >= 0 for q in queues):
                raise ConfigError(f"assign: {topic!r} needs a list of queue numbers, not {queues!r}")
        return {topic: frozenset(queues) for topic, queues in given.items()}

    @property
    def known_columns(self) -> tuple[str, ...]:
        """The columns to choose from."""
        return tuple(KAFKA_COLUMNS) if self.schema is SchemaKind.KAFKA else tuple(COLUMNS)

    @property
    def wanted_columns(self) -> tuple[str, ...]:
        if self.columns.strip():
            return listed(self.columns)
        if self.schema is not SchemaKind.KAFKA:
            return DEFAULT_COLUMNS
        return tuple(name for name in KAFKA_COLUMNS if name != HEADERS or self.include_headers)

    @property
    def wanted_tags(self) -> frozenset[str]:
        if self.tags.strip() == "*":
            return frozenset()
        return frozenset(tag.strip() for tag in re.split(r"\|\||,", self.tags) if tag.strip())

    @property
    def wanted_keys(self) -> frozenset[str]:
        return frozenset(listed(self.keys))

    def selects(self, topic: str, *, system: bool) -> bool:
        """Returns whether a topic is read at all."""
        if self.subscribe:
            return topic in self.topics
        if self.subscribe_pattern:
            return regex_of("subscribePattern", self.subscribe_pattern).fullmatch(topic) is not None
        if self.assign:
            return any(name == topic or name.endswith(f"/{topic}") for name in self.assigned)
        return self.include_system_topics or not system
