"""Views on their way to the disk: what a checkpoint vouches for has been synced before."""

import threading
from pathlib import Path

import pytest

from tandemq.formats.layout import queue_directory
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore

ROOT = Path("/store")
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
CONFIG = StoreConfig(commit_log_segment_size=1 << 16, consume_queue_segment_size=2000, index_slots=7, index_entries=20)


def opened(disk: CrashableDisk) -> MessageStore:
    return MessageStore.open(ROOT, CONFIG, clock=ManualClock(), disk=disk, store_host=HOST)


def put(store: MessageStore, topic: str, count: int) -> None:
    for number in range(count):
        store.append(topic, 0, 0, 0, 1, HOST, 0, 0, b"body", b"KEYS\x01key-%d\x02" % number)


def hand_over_to_a_busy_thread(store: MessageStore) -> None:
    """The flush thread has the views and has not begun with them."""
    store._flusher._thread = threading.Thread()
    store._views.hand_over()
    store._flusher._thread = None
    assert store._flusher.views_busy


def views_of(disk: CrashableDisk) -> dict[Path, bytes]:
    """Returns what is in the files of queues and index."""
    folders = [queue_directory(ROOT, topic, 0) for topic in ("first", "second")] + [ROOT / "index"]
    paths = [folder / name for folder in folders for name in disk.list(folder)]
    return {path: disk.read_file(path) for path in paths}


@pytest.mark.parametrize("how", ["flush", "cut", "close"])
def test_views_that_a_cut_took_from_the_flush_thread_are_synced_with_the_next(how: str) -> None:
    """Else the checkpoint that follows vouches for queue entries that a power cut may take away."""
    disk = CrashableDisk()
    store = opened(disk)
    put(store, "first", 50)
    store.dispatch()
    store.flush_once()
    hand_over_to_a_busy_thread(store)
    put(store, "second", 1)
    end = store.appended
    put(store, "second", 1)
    store.dispatch()
    if how == "flush":
        store.flush_all()
    elif how == "cut":
        store.truncate(end)
    else:
        store.close()
    assert views_of(disk.after_crash()) == views_of(disk)


def test_queue_starts_that_were_handed_over_are_written_with_the_next() -> None:
    """They are written beside a checkpoint, and only if they changed since they were handed over last."""
    disk = CrashableDisk()
    store = opened(disk)
    put(store, "first", 1)
    store.dispatch()
    store.flush_once()
    hand_over_to_a_busy_thread(store)
    assert not disk.survives(ROOT / "queue-starts")
    store.flush_all()
    assert disk.survives(ROOT / "queue-starts")


def test_a_new_index_file_makes_nobody_wait_for_its_name() -> None:
    """The directory is synced with the checkpoint that vouches for the file, not when the file is made."""
    disk = CrashableDisk()
    store = opened(disk)
    put(store, "first", 1)
    store.dispatch()
    store.flush_all()
    steps = len(disk.steps)
    put(store, "first", 50)
    store.dispatch()
    assert len(disk.list(ROOT / "index")) > 1
    assert not [step for step in disk.steps[steps:] if step.startswith("sync")]
    store.flush_all()
    assert views_of(disk.after_crash()) == views_of(disk)
