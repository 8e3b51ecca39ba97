"""Options of `format("rocketmq")` as a sink."""

from dataclasses import dataclass
from enum import Enum

from tandemq.errors import ConfigError
from tandemq.model.ack_level import parse_level
from tandemq.model.topic import topic_name_problem
from tandemq.settings import check, setting
from tandemq.spark.options.connect import ConnectOptions
from tandemq.spark.options.select import SchemaKind


class Delivery(Enum):
    """What happens to messages of a task or micro-batch that is repeated."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class Compression(Enum):
    """How bodies are compressed."""

    NONE = "none"
    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, kw_only=True)
class SinkOptions(ConnectOptions):
    """`format("rocketmq")` as a sink."""

    schema: SchemaKind = setting(
        "schema",
        SchemaKind.ROCKETMQ,
        "kafka: columns as Kafka's sink takes them (key, value, topic, partition, headers); equal keys go to one "
        "queue.",
    )
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
        "Copies that must exist before a message counts as sent: 1, 2, majority, all; with `:durable` at the end, "
        "copies on disk.",
    )
    sink_id: str = setting(
        "sinkId",
        "",
        "Name of this write in the messages' keys: a batch write repeated under the same name repeats its keys.",
    )
    delivery_timeout_ms: int = setting(
        "deliveryTimeoutMs",
        120_000,
        "Longest time from giving a message to the sink until it is acknowledged: all its tries, and waiting for a new "
        "master. `retries` limits the tries.",
        unit="ms",
        minimum=1,
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

    def check_together(self) -> None:
        """Raises ConfigError for rules that concern several options, or the text inside one."""
        self.check_connect()
        if self.topic:
            problem = topic_name_problem(self.topic)
            if problem:
                raise ConfigError(f"topic: {problem}")
        if self.copies:
            try:
                parse_level(self.copies)
            except ConfigError as error:
                raise ConfigError(f"copies: {error}") from None

    def __post_init__(self) -> None:
        check(self)
