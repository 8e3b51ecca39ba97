"""Views made anew while the store goes on: followed, swapped all or nothing, given up without a trace."""

from collections.abc import Iterator

import pytest
from tests.unit.store.stores import ROOT, check_filled, opened, put

from tandemq.errors import StoreError
from tandemq.formats import checkpoint, layout
from tandemq.sim.disk import CrashableDisk, MemoryDisk
from tandemq.store import online_rebuild
from tandemq.store.message_store import MessageStore
from tandemq.store.online_rebuild import OnlineRebuild


def filled_store(disk: MemoryDisk, count: int = 30) -> MessageStore:
    store = opened(disk)
    add(store, range(count))
    store.flush_all()
    return store


def add(store: MessageStore, numbers: range) -> None:
    for n in numbers:
        put(store, bytes([n % 256]) * 300, f"KEYS\x01k{n}\x02".encode(), queue_id=n % 2)
    store.dispatch()


def carried_out(rebuild: OnlineRebuild) -> Iterator[str]:
    """Does all steps; yields the phase before each."""
    for work in rebuild.steps():
        yield rebuild.status().phase
        work()


def test_damaged_views_are_replaced_while_messages_arrive() -> None:
    disk = MemoryDisk()
    store = filled_store(disk)
    disk.remove_tree(ROOT / layout.CONSUME_QUEUE)
    rebuild = store.rebuild_views(1000)
    phases, number = [], 30
    for phase in carried_out(rebuild):
        phases.append(phase)
        if number < 40:
            add(store, range(number, number + 1))
            number += 1
    assert phases == sorted(phases, key=["building", "syncing", "cleaning"].index)
    assert not rebuild.is_running
    assert rebuild.status().phase == "done"
    check_filled(store, 40)
    store.close()
    check_filled(opened(disk), 40)
    assert layout.REBUILD not in disk.list(ROOT)


def test_a_rebuild_tells_how_many_queues_were_wrong() -> None:
    disk = MemoryDisk()
    store = filled_store(disk)
    store._views.queue_table.table["t", 1].cut(1000)
    rebuild = store.rebuild_views(1 << 20)
    assert list(carried_out(rebuild))
    assert rebuild.status().queues_corrected == 1
    check_filled(store)


def test_a_cut_log_ends_the_rebuild_and_leaves_the_live_views() -> None:
    disk = MemoryDisk()
    store = filled_store(disk)
    end = store.appended
    add(store, range(30, 34))
    rebuild = store.rebuild_views(1000)
    steps = carried_out(rebuild)
    next(steps)
    store.truncate(end)
    with pytest.raises(StoreError, match="given up: the log was cut"):
        list(steps)
    assert rebuild.status().phase == "given up"
    assert layout.REBUILD not in disk.list(ROOT)
    check_filled(store)


def test_one_rebuild_at_a_time_can_be_abandoned() -> None:
    """Whoever takes the steps may stop taking them: nothing is left."""
    disk = MemoryDisk()
    store = filled_store(disk)
    steps = carried_out(store.rebuild_views(1000))
    next(steps)
    steps.close()
    check_filled(store)


@pytest.mark.parametrize("announced", [False, True])
def test_opening_finishes_what_was_decided_and_forgets_the_rest(announced: bool) -> None:
    disk = CrashableDisk()
    for name in (layout.CONSUME_QUEUE, layout.INDEX):
        for folder, content in ((ROOT / name, b"old"), (ROOT / layout.REBUILD / name, b"new")):
            disk.make_directory(folder)
            disk.create_file(folder / "file", 3)
            disk.write_at(folder / "file", 0, content)
    if announced:
        online_rebuild.announce(disk, ROOT, b"\x07" * checkpoint.SIZE)
    online_rebuild.settle(disk, ROOT)
    expected = b"new" if announced else b"old"
    assert {disk.read_file(ROOT / name / "file") for name in (layout.CONSUME_QUEUE, layout.INDEX)} == {expected}
    assert layout.REBUILD not in disk.list(ROOT)
    assert (disk.file_size(ROOT / layout.CHECKPOINT) is not None) is announced


def test_a_torn_decision_is_none() -> None:
    disk = MemoryDisk()
    disk.make_directory(ROOT)
    online_rebuild.announce(disk, ROOT, b"\x07" * checkpoint.SIZE)
    whole = disk.read_file(ROOT / layout.REBUILT)
    assert online_rebuild.is_announced(disk, ROOT)
    for content in (whole[:-1], b"\x08" + whole[1:]):
        disk.replace_file(ROOT / layout.REBUILT, content)
        assert not online_rebuild.is_announced(disk, ROOT)


def test_directories_are_synced_in_one_order() -> None:
    """A power cut between two of them must leave the same whenever a simulation is repeated, whatever sets hash to."""
    disk = CrashableDisk()
    store = opened(disk)
    topics = [f"topic-{n}" for n in range(10)]
    for topic in topics:
        put(store, topic=topic)
    store.dispatch()
    store.flush_all()
    disk.steps.clear()
    for _ in carried_out(store.rebuild_views(1)):
        pass
    synced = [step.removeprefix("sync directory ") for step in disk.steps if step.startswith("sync directory topic-")]
    assert synced == topics
