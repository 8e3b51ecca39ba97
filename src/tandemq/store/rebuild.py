"""Queues and index built anew from the log, offline: views are derived, so losing them loses nothing.

Topics that were deleted come back as far as the log still has messages of them. That is on purpose: the log does not
say that a topic was deleted, and `config/topics.json` may be older than it (a slave copies it now and then, a backup
is what it is). A queue too many only wastes room; a queue dropped wrongly would number its next message 0 again. So
they are named, and dropping them is left to the running broker, whose table is the right one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tandemq.clock import Clock
from tandemq.store import layout
from tandemq.store.config import StoreConfig
from tandemq.store.config_files import TOPICS, ConfigFiles
from tandemq.store.disk import Disk
from tandemq.store.message_store import MessageStore, StoreStatus


@dataclass(frozen=True, slots=True)
class Rebuilt:
    status: StoreStatus
    unknown_topics: list[str]
    """Topics with queues that `config/topics.json`, if there is one, does not name."""


def rebuild(
    disk: Disk,
    root: Path,
    config: StoreConfig,
    clock: Clock | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Rebuilt:
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
    rebuilt = Rebuilt(store.status(), _unknown_topics(disk, root, {topic for topic, _ in store.queues()}))
    store.close()
    return rebuilt


def _unknown_topics(disk: Disk, root: Path, topics: set[str]) -> list[str]:
    value = ConfigFiles(disk, root).load(TOPICS)
    table = value.get("topicConfigTable") if isinstance(value, dict) else None
    return sorted(topics.difference(table)) if isinstance(table, dict) else []
