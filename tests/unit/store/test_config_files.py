"""The tables of a store as files: atomic, with the version before, read tolerantly."""

from pathlib import Path

from tandemq.codec import fastjson
from tandemq.sim.disk import CrashableDisk, MemoryDisk, PowerCut
from tandemq.store.config_files import TOPICS, ConfigFiles

ROOT = Path("/store")
PATH = ROOT / "config" / TOPICS


def test_what_was_saved_is_loaded() -> None:
    files = ConfigFiles(MemoryDisk(), ROOT)
    assert files.load(TOPICS) is None
    files.save(TOPICS, {"topicConfigTable": {"t": {"perm": 6}}})
    assert files.load(TOPICS) == {"topicConfigTable": {"t": {"perm": 6}}}


def test_upstreams_text_with_bare_numbers_for_keys_is_read() -> None:
    disk = MemoryDisk()
    disk.make_directory(PATH.parent)
    disk.replace_file(PATH, b'{"offsetTable":{"t@g":{0:5,1:7}}}')
    assert ConfigFiles(disk, ROOT).load(TOPICS) == {"offsetTable": {"t@g": {0: 5, 1: 7}}}


def test_a_file_that_cannot_be_read_gives_way_to_the_one_before() -> None:
    disk = MemoryDisk()
    files = ConfigFiles(disk, ROOT)
    files.save(TOPICS, {"a": 1})
    files.save(TOPICS, {"a": 2})
    for damage in (b"", b'{"a":', b"\xff\xfe"):
        disk.replace_file(PATH, damage)
        assert files.load(TOPICS) == {"a": 1}, damage
    disk.remove(PATH)
    assert files.load(TOPICS) == {"a": 1}
    disk.replace_file(PATH.with_name(f"{TOPICS}.bak"), b"nonsense")
    assert files.load(TOPICS) is None


def test_a_power_cut_at_any_step_leaves_the_old_or_the_new_table() -> None:
    step = 0
    while True:
        disk = CrashableDisk()
        files = ConfigFiles(disk, ROOT)
        files.save(TOPICS, {"a": 1})
        files.save(TOPICS, {"a": 2})
        disk.crash_at = len(disk.steps) + step
        try:
            files.save(TOPICS, {"a": 3})
        except PowerCut:
            assert ConfigFiles(disk.after_crash(), ROOT).load(TOPICS) in ({"a": 2}, {"a": 3})
            step += 1
            continue
        assert ConfigFiles(disk.after_crash(), ROOT).load(TOPICS) == {"a": 3}
        break
    assert step > 4


def test_the_file_is_readable_for_people_and_for_java() -> None:
    disk = MemoryDisk()
    ConfigFiles(disk, ROOT).save(TOPICS, {"b": {"c": 1}})
    text = disk.read_file(PATH)
    assert text.count(b"\n") > 1
    assert fastjson.loads(text) == {"b": {"c": 1}}
