"""Views made anew from the log while no broker runs."""

import pytest
from tests.unit.store.stores import CONFIG, ROOT, check_filled, filled, opened, put

from tandemq.errors import StoreLocked
from tandemq.formats import layout
from tandemq.sim.disk import MemoryDisk
from tandemq.store.config_files import TOPICS, ConfigFiles
from tandemq.store.rebuild import rebuild


def test_lost_views_come_back_from_the_log() -> None:
    disk = MemoryDisk()
    filled(disk)
    disk.remove_tree(ROOT / layout.CONSUME_QUEUE)
    disk.remove_tree(ROOT / layout.INDEX)
    told: list[tuple[int, int]] = []
    found = rebuild(disk, ROOT, CONFIG, progress=lambda done, whole: told.append((done, whole)))
    assert (found.damages, found.unknown_topics, found.cut_bytes) == ([], [], 0)
    assert found.status.queues == 2
    check_filled(opened(disk))


def test_entries_that_were_wrong_are_right_afterwards() -> None:
    disk = MemoryDisk()
    filled(disk)
    path = layout.queue_directory(ROOT, "t", 0) / layout.segment_name(0)
    disk.write_at(path, 0, disk.read_at(path, 20, 20))
    rebuild(disk, ROOT, CONFIG)
    check_filled(opened(disk))


def test_topics_that_no_table_names_are_told_and_kept() -> None:
    """The log does not say that they were deleted, and a table may be older than the log."""
    disk = MemoryDisk()
    store = opened(disk)
    put(store, topic="known")
    put(store, topic="gone")
    store.dispatch()
    store.close()
    assert rebuild(disk, ROOT, CONFIG).unknown_topics == [], "without a table nothing is known"
    ConfigFiles(disk, ROOT).save(TOPICS, {"topicConfigTable": {"known": {}}})
    assert rebuild(disk, ROOT, CONFIG).unknown_topics == ["gone"]
    assert opened(disk).reader.queue_range("gone", 0) == (0, 1)


def test_damage_in_the_middle_is_told_and_what_follows_is_kept_aside() -> None:
    """A log ends at its first damage, as recovery has it; the whole records after it lie under cut/."""
    disk = MemoryDisk()
    offsets = filled(disk)
    assert offsets[3] < 4096
    path = ROOT / layout.COMMIT_LOG / layout.segment_name(0)
    disk.write_at(path, offsets[2] + 4, b"\0\0\0\0")
    found = rebuild(disk, ROOT, CONFIG)
    assert len(found.damages) == 1
    assert f"offset {offsets[2]}" in found.damages[0]
    assert found.cut_bytes > offsets[-1] - offsets[2]
    check_filled(opened(disk), 2)
    assert layout.segment_name(offsets[2]) in disk.list(ROOT / layout.CUT)


def test_the_torn_end_of_a_log_is_no_damage() -> None:
    disk = MemoryDisk()
    offsets = filled(disk)
    base = offsets[-1] - offsets[-1] % 4096
    disk.write_at(ROOT / layout.COMMIT_LOG / layout.segment_name(base), offsets[-1] % 4096 + 4, b"\0\0\0\0")
    assert rebuild(disk, ROOT, CONFIG).damages == []
    check_filled(opened(disk), 29)


def test_a_store_in_use_is_left_alone() -> None:
    disk = MemoryDisk()
    filled(disk)
    store = opened(disk)
    with pytest.raises(StoreLocked):
        rebuild(disk, ROOT, CONFIG)
    check_filled(store)
