"""Queues and index built anew from the log, offline: views are derived, so losing them loses nothing.

A topic that RocketMQ deleted, or TandemQ before it wrote marks, comes back as far as the log still has messages of it.
That is on purpose: the log does not say that it was deleted, and `config/topics.json` may be older than the log (a
slave copies it now and then, a backup is what it is). A queue too many only wastes room; a queue dropped wrongly would
number its next message 0 again. So such topics are named, and dropping them is left to the running broker, whose table
is the right one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tandemq.clock import Clock
from tandemq.formats import layout
from tandemq.store.config import StoreConfig
from tandemq.store.config_files import TOPICS, ConfigFiles
from tandemq.store.disk import Disk
from tandemq.store.log_walk import whole_records
from tandemq.store.message_store import MessageStore, StoreStatus
from tandemq.store.segments import SegmentChain


@dataclass(frozen=True, slots=True)
class Rebuilt:
    status: StoreStatus
    unknown_topics: list[str]
    """Topics with queues that `config/topics.json`, if there is one, does not name."""
    damages: list[str]
    """Where the log has no whole record although some follow: those may be in no queue."""
    cut_bytes: int
    """What opening cut off after a damage and keeps under cut/."""


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
        damages = _damages(disk, root, config)
        # The checkpoint first: without it nobody trusts half-removed views.
        disk.remove(root / layout.CHECKPOINT)
        disk.sync_directory(root)
        disk.remove_tree(root / layout.CONSUME_QUEUE)
        disk.remove_tree(root / layout.INDEX)
        disk.sync_directory(root)
    finally:
        lock.release()
    store = MessageStore.open(root, config, clock=clock, disk=disk, progress=progress)
    found = store.recovered
    cut_bytes = max(0, found.saved_to - found.end) if found is not None else 0
    unknown = _unknown_topics(disk, root, {topic for topic, _ in store.reader.queues()})
    rebuilt = Rebuilt(store.status(), unknown, damages, cut_bytes)
    store.close()
    return rebuilt


def _damages(disk: Disk, root: Path, config: StoreConfig) -> list[str]:
    chain = SegmentChain(disk, root / layout.COMMIT_LOG, config.commit_log_segment_size, writable=False)
    chain.load()
    found, at_the_end = [], ""
    for base in chain.bases:
        view = chain.segment(base).view
        for at, damage in whole_records(view, base):
            if damage is None:
                if at_the_end:  # it was not the log's end after all
                    found.append(at_the_end)
                at_the_end = ""
                continue
            what = f"{chain.path(base)} at offset {base + at}: {damage.problem}"
            if damage.after is None:
                at_the_end = what
            else:
                found.append(what)
    chain.close()
    return found


def _unknown_topics(disk: Disk, root: Path, topics: set[str]) -> list[str]:
    value = ConfigFiles(disk, root).load(TOPICS)
    table = value.get("topicConfigTable") if isinstance(value, dict) else None
    return sorted(topics.difference(table)) if isinstance(table, dict) else []
