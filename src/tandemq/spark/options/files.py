"""Options of `format("rocketmq-commitlog")`."""

from dataclasses import dataclass
from enum import Enum

from tandemq.errors import ConfigError
from tandemq.settings import setting
from tandemq.spark.options.select import SelectOptions


class Order(Enum):
    """In which order the files of a store are read."""

    PHYSICAL = "physical"
    QUEUE = "queue"


class UpTo(Enum):
    """Where a live log ends for a reader."""

    CONFIRMED = "confirmed"
    WRITTEN = "written"


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

    def check_together(self) -> None:
        """Raises ConfigError for rules that concern several options, or the text inside one."""
        self.check_selection()
        if not self.path:
            raise ConfigError("path: missing; give a store directory, e.g. .load('/data/broker-a/store')")
        if self.order is Order.PHYSICAL:
            for name, key in (
                ("assign", "assign"), ("max_records_per_partition", "maxRecordsPerPartition"),
                ("max_offsets_per_trigger", "maxOffsetsPerTrigger"),
                ("min_offsets_per_trigger", "minOffsetsPerTrigger"),
                ("starting_offsets_by_timestamp", "startingOffsetsByTimestamp"),
                ("ending_offsets_by_timestamp", "endingOffsetsByTimestamp"),
            ):  # fmt: skip
                if getattr(self, name):
                    raise ConfigError(f"{key} counts queue offsets and needs order=queue; physical order counts bytes")
