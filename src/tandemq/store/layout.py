"""Where things lie under a store's root directory (StorePathConfigHelper), and how files are named."""

from pathlib import Path

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
INDEX = "index"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
CONFIG = "config"
CUT = "cut"
"""Bytes cut off a log are kept here, readable by the store tools."""
TRUNCATION = "truncation"
"""Ours: present while a truncation is under way."""
REBUILD = "rebuild"
"""Ours: views that are being built anew while the store is open."""
REBUILT = "rebuilt"
"""Ours: present while views that were built anew take the place of the old ones."""

NAME_DIGITS = 20


def segment_name(base_offset: int) -> str:
    """A file is named after the offset of its first byte."""
    return f"{base_offset:0{NAME_DIGITS}d}"


def is_segment_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isdecimal()


def queue_directory(root: Path, topic: str, queue_id: int) -> Path:
    return root / CONSUME_QUEUE / topic / str(queue_id)
