from dataclasses import replace

import pytest
from tests.unit.store.stores import CONFIG, HOST, ROOT, opened

from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.sim.disk import MemoryDisk
from tandemq.store.discover import discover_config
from tandemq.store.rebuild import rebuild
from tandemq.store.verify import verify

LEVELS = replace(CONFIG, message_delay_level="7s 8s 9h")


@pytest.fixture
def disk() -> MemoryDisk:
    """A store of a broker with delays of its own, with a message of levels 1 and 3."""
    disk = MemoryDisk()
    store = opened(disk, LEVELS)
    for level in (1, 3):
        properties = f"DELAY\x01{level}\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02".encode()
        store.append(SCHEDULE_TOPIC, level - 1, 0, 0, 1, HOST, 0, 0, b"later", properties)
    store.dispatch()
    store.close()
    return disk


def test_sizes_and_delays_are_found_from_the_files(disk: MemoryDisk) -> None:
    found = discover_config(disk, ROOT)
    assert (found.commit_log_segment_size, found.consume_queue_segment_size) == (4096, 200)
    assert found.message_delay_level.split()[:4] == ["7s", "5s", "32400s", "30s"], "level 2 is the default's"


def test_a_store_with_delays_of_its_own_is_whole_and_is_rebuilt_as_it_was(disk: MemoryDisk) -> None:
    queue = ROOT / "consumequeue" / SCHEDULE_TOPIC / "2" / f"{0:020d}"
    before = disk.read_file(queue)
    assert verify(disk, ROOT, CONFIG).ok
    rebuild(disk, ROOT, discover_config(disk, ROOT))
    assert disk.read_file(queue) == before
