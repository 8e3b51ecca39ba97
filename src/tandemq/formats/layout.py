"""Where things lie under a store's root directory (StorePathConfigHelper), and how files are named.

    commitlog/00000000000000000000 …           the log: files of one size, named after the offset of their first byte
    consumequeue/TOPIC/QUEUE_ID/00000000000000000000 …   queue entries, likewise (queue_entry)
    index/20240131235959123 …                  key index, files named after the time they were made (index_file)
    checkpoint                                 up to where all of it is known to be on disk (checkpoint)
    abort                                      there while a broker runs; at start it tells of a crash
    lock                                       locked while a broker runs
    config/*.json                              the broker's tables
    queue-starts                               ours: the queues at the first offset of the log (queue_starts)
    replica.json                               ours: a node's place in its group (replica_record)
    confirmed                                  ours: how far readers of a replica could see (store/confirmed_mark)
    cut/, truncation, rebuild/, rebuilt        ours: history that was cut off, changes that are under way

What is ours is passed over by a RocketMQ broker that opens the store.
"""

from pathlib import Path

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
INDEX = "index"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
CONFIG = "config"
REPLICA = "replica.json"
CONFIRMED = "confirmed"
CUT = "cut"
"""Bytes cut off a log are kept here, readable by the store tools."""
QUEUE_STARTS = "queue-starts"
"""Ours: the queues at the first offset of the log (queue_starts)."""
DELETED_QUEUES = ".deleted"
"""Ours, in the directory of the queues: queues of deleted topics, until a checkpoint knows that they are gone."""
TRUNCATION = "truncation"
"""Ours: present while a truncation is under way."""
REBUILD = "rebuild"
"""Ours: views that are being built anew while the store is open."""
REBUILT = "rebuilt"
"""Ours: present while views that were built anew take the place of the old ones."""

NAME_DIGITS = 20


def segment_name(base_offset: int) -> str:
    """Returns the name of the file whose first byte has this offset."""
    return f"{base_offset:0{NAME_DIGITS}d}"


def is_segment_name(name: str) -> bool:
    """Returns whether this is the name of a file of the log or of a queue."""
    return len(name) == NAME_DIGITS and name.isdecimal()


def queue_directory(root: Path, topic: str, queue_id: int) -> Path:
    """Returns the directory of one consume queue."""
    return root / CONSUME_QUEUE / topic / str(queue_id)


def journal_path(path: Path) -> Path:
    """Returns where the journal of a table's file lies (`table_files.py`)."""
    return path.with_suffix(".journal")
