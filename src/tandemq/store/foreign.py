"""Refuses stores that RocketMQ's other engines wrote: their files look like ours and mean something else."""

from pathlib import Path

from tandemq.errors import StoreError
from tandemq.formats import layout
from tandemq.store.disk import Disk

DLEDGER_PREFIX = "dledger-"
EPOCH_FILE = "epochFileCheckpoint"
ROCKSDB_MARK = "CURRENT"
"""Every RocksDB directory has a file of this name."""
ROCKSDB_QUEUES = "consumequeue_rocksdb"


def refuse_foreign(disk: Disk, root: Path) -> None:
    """Raises StoreError, with what to do, for the store of DLedger, of a controller, or with queues in RocksDB."""
    for name in disk.list(root):
        if name.startswith(DLEDGER_PREFIX):
            raise StoreError(
                f"{root / name} is the log of DLedger, which only RocketMQ reads: start a new group beside it, let "
                "producers move there, and drain this one (docs/replica.md, side by side)"
            )
    if disk.file_size(root / EPOCH_FILE) is not None:
        raise StoreError(
            f"{root / EPOCH_FILE} says that a RocketMQ controller decides what of this log counts: stop the whole "
            "group, start it once under RocketMQ without enableControllerMode, stop it, then delete the file"
        )
    queues = root / layout.CONSUME_QUEUE
    places = (root / ROCKSDB_QUEUES, queues, *(root / "config" / name for name in disk.list(root / "config")))
    for place in places:
        if disk.file_size(place / ROCKSDB_MARK) is not None:
            raise StoreError(
                f"{place} is a RocksDB, which only RocketMQ reads: start the broker once under RocketMQ with "
                "storeType=default (and configManagerVersion=V1), or start a new group beside it (docs/replica.md)"
            )
