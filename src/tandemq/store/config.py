"""Settings of the store, under RocketMQ's property names (MessageStoreConfig)."""

from dataclasses import dataclass
from enum import Enum

from tandemq.errors import ConfigError
from tandemq.formats.envelope import DELAY_LEVELS_DEFAULT, parse_delay_levels
from tandemq.formats.queue_entry import ENTRY_SIZE
from tandemq.settings import check, setting


class FlushDiskType(Enum):
    """When a send is answered with respect to this node's disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    """At once; the disk follows within the flush interval."""
    SYNC_FLUSH = "SYNC_FLUSH"
    """After fdatasync; one call serves every send that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """One store. Sizes must be those the files were made with: a store opens with its own sizes or not at all."""

    commit_log_segment_size: int = setting(
        "mappedFileSizeCommitLog", 1 << 30, "Size of one commit-log file.", unit="bytes", minimum=4096, maximum=1 << 31
    )
    consume_queue_segment_size: int = setting(
        "mappedFileSizeConsumeQueue",
        300_000 * ENTRY_SIZE,
        "Size of one consume-queue file; rounded up to whole entries of 20 bytes.",
        unit="bytes",
        minimum=ENTRY_SIZE,
        maximum=1 << 31,
    )
    index_enable: bool = setting("messageIndexEnable", True, "Whether messages can be looked up by key.")
    index_slots: int = setting(
        "maxHashSlotNum", 5_000_000, "Hash slots of one index file.", minimum=1, maximum=500_000_000
    )
    index_entries: int = setting(
        "maxIndexNum", 20_000_000, "Entries of one index file, of which the first stays unused.", minimum=2
    )
    message_size_max: int = setting(
        "maxMessageSize",
        4 * 1024 * 1024,
        "Largest message body accepted.",
        unit="bytes",
        minimum=1,
        maximum=256 * 1024 * 1024,
        tunable=True,
    )
    auto_message_version: bool = setting(
        "autoMessageVersionOnTopicLen",
        True,
        "Topics longer than 127 bytes get v2 records, which RocketMQ 4.x can't read; without it they are refused.",
    )
    flush_disk_type: FlushDiskType = setting(
        "flushDiskType",
        FlushDiskType.ASYNC_FLUSH,
        "SYNC_FLUSH answers a send after fdatasync and survives a machine crash; ASYNC_FLUSH answers at once.",
    )
    flush_interval_ms: int = setting(
        "flushIntervalCommitLog", 500, "ASYNC_FLUSH: how often the log is flushed.", unit="ms", minimum=1
    )
    flush_pages_min: int = setting(
        "flushCommitLogLeastPages", 4, "ASYNC_FLUSH: dirty pages of 4 KiB below which a flush waits.", minimum=0
    )
    flush_thorough_interval_ms: int = setting(
        "flushCommitLogThoroughInterval", 10_000, "ASYNC_FLUSH: flush however little there is.", unit="ms", minimum=1
    )
    flush_views_interval_ms: int = setting(
        "flushIntervalConsumeQueue",
        1000,
        "How often consume queues and index become durable; bounds what recovery has to dispatch again. With more "
        "queues than 1000 that have new messages it is a millisecond for each of them, a minute at most.",
        unit="ms",
        minimum=1,
    )
    sync_flush_timeout_ms: int = setting(
        "syncFlushTimeout",
        5000,
        "SYNC_FLUSH: how long a send waits for the disk.",
        unit="ms",
        minimum=1,
        maximum=600_000,
        tunable=True,
    )
    check_crc_on_recover: bool = setting(
        "checkCRCOnRecover", True, "Whether recovery compares body checksums of what it scans."
    )
    message_delay_level: str = setting("messageDelayLevel", DELAY_LEVELS_DEFAULT, "Delays of levels 1, 2, …")
    delete_when: str = setting("deleteWhen", "04", "Local hours, separated by ;, at which expired files are deleted.")
    file_reserved_hours: int = setting(
        "fileReservedTime",
        72,
        "How long a commit-log file is kept.",
        unit="h",
        minimum=1,
        maximum=10_000_000,
        tunable=True,
    )
    delete_batch_max: int = setting("deleteFileBatchMax", 10, "Most files deleted in one run.", minimum=1)
    disk_used_ratio_max: int = setting(
        "diskMaxUsedSpaceRatio",
        75,
        "Disk use above which expired files are deleted at any hour.",
        unit="%",
        minimum=10,
        maximum=95,
    )
    disk_clean_forcibly_ratio: int = setting(
        "diskSpaceCleanForciblyRatio",
        85,
        "Disk use above which the oldest files are deleted even if not expired; writing resumes below it.",
        unit="%",
        minimum=10,
        maximum=99,
    )
    disk_warning_ratio: int = setting(
        "diskSpaceWarningLevelRatio", 90, "Disk use above which writes are refused.", unit="%", minimum=35, maximum=100
    )
    clean_forcibly_enable: bool = setting(
        "cleanFileForciblyEnable", True, "Whether files that are not expired may be deleted to make room."
    )
    clean_interval_ms: int = setting(
        "cleanResourceInterval", 10_000, "How often retention and disk use are checked.", unit="ms", minimum=1
    )
    query_count_max: int = setting("maxMsgsNumBatch", 64, "Most messages one query by key returns.", minimum=1)
    mapped_segments_max: int = setting(
        "mappedSegmentsMax", 32, "Commit-log files mapped at a time; each takes two file descriptors.", minimum=2
    )
    open_files_max: int = setting(
        "openViewFilesMax", 128, "Consume-queue files kept open at a time, however many queues there are.", minimum=4
    )
    pending_views_max: int = setting(
        "pendingViewsMax",
        8 * 1024 * 1024,
        "Consume-queue entries held in memory before they are written to their files.",
        unit="bytes",
        minimum=ENTRY_SIZE,
    )

    def __post_init__(self) -> None:
        check(self)
        try:
            parse_delay_levels(self.message_delay_level)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        for hour in self.delete_when.split(";"):
            if not hour.strip().isdecimal() or int(hour) > 23:
                raise ConfigError(f"deleteWhen={self.delete_when!r}: hours from 00 to 23 separated by ; expected")

    @property
    def consume_queue_file_size(self) -> int:
        """The file size in whole entries."""
        return -(-self.consume_queue_segment_size // ENTRY_SIZE) * ENTRY_SIZE

    @property
    def record_size_max(self) -> int:
        """Returns the size of the largest record: the body limit and 64 KiB for the rest, as upstream has it."""
        return self.message_size_max + 64 * 1024
