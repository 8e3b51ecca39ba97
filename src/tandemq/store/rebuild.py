"""Queues and index built anew from the log, offline: views are derived, so losing them loses nothing."""

from collections.abc import Callable
from pathlib import Path

from tandemq.clock import Clock
from tandemq.store import layout
from tandemq.store.config import StoreConfig
from tandemq.store.disk import Disk
from tandemq.store.message_store import MessageStore, StoreStatus


def rebuild(
    disk: Disk,
    root: Path,
    config: StoreConfig,
    clock: Clock | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> StoreStatus:
    """Drops consume queues, index and checkpoint, then opens the store, which derives them from the whole log.

    A crash on the way is harmless: the next open finds the views incomplete and does the same.
    """
    lock = disk.lock(root / layout.LOCK)
    try:
        # The checkpoint first: without it nobody trusts half-removed views.
        disk.remove(root / layout.CHECKPOINT)
        disk.sync_directory(root)
        disk.remove_tree(root / layout.CONSUME_QUEUE)
        disk.remove_tree(root / layout.INDEX)
        disk.sync_directory(root)
    finally:
        lock.release()
    store = MessageStore.open(root, config, clock=clock, disk=disk, progress=progress)
    status = store.status()
    store.close()
    return status
