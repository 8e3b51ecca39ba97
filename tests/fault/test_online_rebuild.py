"""Views built anew while the store is open: the same views as dispatch made, whatever happens meanwhile."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tandemq.errors import StoreError
from tandemq.formats import layout
from tandemq.formats.log_mark import LOG_MARK_TOPIC, TopicDeleted
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import CrashableDisk, PowerCut
from tandemq.store.config import StoreConfig
from tandemq.store.disk import FileDisk
from tandemq.store.message_store import MessageStore
from tandemq.store.verify import verify

pytestmark = pytest.mark.exhaustive

ROOT = Path("/store")
CONFIG = StoreConfig(
    commit_log_segment_size=4096,
    consume_queue_segment_size=5 * 20,
    index_slots=7,
    index_entries=20,
    message_size_max=3000,
)
HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
FOREVER = 1 << 62
SURVIVALS = ["nothing", "everything", *range(6)]
STEP = 600


def opened(disk: CrashableDisk, root: Path = ROOT) -> MessageStore:
    return MessageStore.open(root, CONFIG, clock=ManualClock(), disk=disk, store_host=HOST)


def put(store: MessageStore, number: int, topic: str = "topic") -> int:
    properties = f"KEYS\x01key-{number:05d}\x02".encode()
    body = Random(number).randbytes(500)
    return store.append(topic, number % 2, 0, 0, 1, HOST, 0, 0, body, properties).queue_offset


def filled(disk: CrashableDisk, count: int = 20) -> MessageStore:
    store = opened(disk)
    for number in range(count):
        put(store, number)
    store.dispatch()
    store.flush_all()
    return store


def rebuilt(store: MessageStore, between: Callable[[], object] = lambda: None) -> None:
    for work in store.rebuild_views(STEP).steps():
        work()
        between()


def check(store: MessageStore, numbers: list[int]) -> None:
    """Queues and index hold exactly these messages."""
    for queue_id in range(2):
        expected = [number for number in numbers if number % 2 == queue_id]
        assert store.reader.queue_range("topic", queue_id) == (0, len(expected))
        for offset, number in enumerate(expected):
            assert f"key-{number:05d}".encode() in bytes(store.reader.get("topic", queue_id, offset, 1, 1).slices[0])
    for number in range(60):
        assert len(store.reader.query("topic", f"key-{number:05d}", 5, 0, FOREVER)) == numbers.count(number), number


def view_files(disk: CrashableDisk) -> dict[str, bytes]:
    """Queue files by name, index files by their order: their names are times."""
    queues = {str(path): bytes(file.data) for path, file in disk.files.items() if layout.CONSUME_QUEUE in path.parts}
    index = sorted(path for path in disk.files if path.parent.name == layout.INDEX)
    return queues | {f"index {number}": bytes(disk.files[path].data) for number, path in enumerate(index)}


def test_rebuilt_files_are_the_files_that_dispatch_wrote() -> None:
    """Byte for byte, and nothing is left behind."""
    disk = CrashableDisk()
    store = filled(disk)
    before = view_files(disk)
    rebuilt(store)
    assert view_files(disk) == before
    assert not [path for path in disk.files if layout.REBUILD in path.parts or path.name == layout.REBUILT]
    store.close()


def test_appends_and_reads_go_on_meanwhile() -> None:
    """Every step sees a new message appended, dispatched and read; all are in the views at the end."""
    disk = CrashableDisk()
    store = filled(disk)
    numbers = list(range(20))

    def between() -> None:
        if len(numbers) < 50:
            put(store, len(numbers))
            numbers.append(len(numbers))
            store.dispatch()
            check(store, numbers)

    rebuilt(store, between)
    check(store, numbers)
    store.close()
    again = opened(disk)
    assert again.recovered is not None
    assert not again.recovered.rebuilt
    check(again, numbers)


@pytest.mark.parametrize("survival", SURVIVALS)
def test_a_crash_at_any_step_leaves_whole_views(survival: object) -> None:
    """Power cut before every operation of a rebuild with messages arriving: what was flushed is in the views."""
    step = 0
    finished = False
    while not finished:
        disk = CrashableDisk()
        store = filled(disk, 12)
        numbers = list(range(12))

        def between(store: MessageStore = store, numbers: list[int] = numbers) -> None:
            if len(numbers) < 15:
                put(store, len(numbers))
                numbers.append(len(numbers))
                store.dispatch()
                store.flush_once()

        disk.crash_at = len(disk.steps) + step
        try:
            rebuilt(store, between)
            finished = True
        except PowerCut:
            step += 1
        random = Random(f"{survival} {step}") if isinstance(survival, int) else None
        disk = disk.after_crash(random, keep_all=survival == "everything")
        again = opened(disk)
        there = again.reader.queue_range("topic", 0)[1] + again.reader.queue_range("topic", 1)[1]
        assert len(numbers) - 1 <= there <= len(numbers)  # the last one may not have been flushed
        check(again, numbers[:there])
        assert layout.REBUILD not in disk.list(ROOT)
        put(again, there)
        again.dispatch()
        again.close()
        check(opened(disk), [*numbers[:there], there])
    assert step > 40


def test_damage_under_a_running_store_is_repaired() -> None:
    """Queue files that vanished or were overwritten while the store was open come back."""
    disk = CrashableDisk()
    store = filled(disk)
    queue = ROOT / layout.CONSUME_QUEUE / "topic"
    disk.write_at(queue / "0" / layout.segment_name(0), 0, b"\xff" * 60)
    disk.remove(queue / "1" / layout.segment_name(100))
    rebuild = store.rebuild_views(STEP)
    for work in rebuild.steps():
        work()
    assert rebuild.status().phase == "done"
    check(store, list(range(20)))
    store.close()
    assert verify(disk, ROOT, CONFIG).ok


def test_a_deleted_topic_stays_deleted_and_one_made_again_starts_at_zero() -> None:
    """The log still has their old messages; the views know better. Offline, at least the second holds."""
    disk = CrashableDisk()
    store = filled(disk, 8)
    for number in range(4):
        put(store, number, "gone")
    store.dispatch()
    store.append_mark(TopicDeleted("gone"))
    store.append_mark(TopicDeleted("topic"))
    assert [put(store, number) for number in range(40, 46)] == [0, 0, 1, 1, 2, 2]
    store.dispatch()
    rebuilt(store)
    assert {topic for topic, _ in store.reader.queues()} == {"topic", LOG_MARK_TOPIC}
    for queue_id in range(2):
        assert store.reader.queue_range("topic", queue_id) == (0, 3)
        assert f"key-000{40 + queue_id}".encode() in bytes(store.reader.get("topic", queue_id, 0, 1, 1).slices[0])
    store.abandon()
    disk = disk.after_crash(keep_all=True)
    disk.remove(ROOT / layout.CHECKPOINT)
    disk.remove_tree(ROOT / layout.CONSUME_QUEUE)
    again = opened(disk)
    assert again.reader.queue_range("topic", 0) == (0, 3)


def test_a_topic_that_comes_and_goes_meanwhile_leaves_nothing() -> None:
    """Its messages were added to the new views, and the log says that they are gone before these are synced."""
    disk = CrashableDisk()
    store = filled(disk, 8)

    def come_and_go() -> None:
        for number in range(4):
            put(store, number, "brief")
        store.append_mark(TopicDeleted("brief"))
        store.dispatch()

    rebuilt(store, come_and_go)
    assert {topic for topic, _ in store.reader.queues()} == {"topic", LOG_MARK_TOPIC}
    check(store, list(range(8)))


def test_a_queue_whose_messages_expired_keeps_its_numbers() -> None:
    """Retention took all of a queue's messages: the next one gets the next offset, before and after a restart."""
    disk = CrashableDisk()
    store = opened(disk)
    for number in range(0, 14, 2):
        put(store, number, "quiet")
    for number in range(30):
        put(store, number)
    store.dispatch()
    store.flush_all()
    for _ in range(2):
        store.log.chain.drop_oldest()
    store._views.drop_before(store.first_offset)
    rebuilt(store)
    assert store.reader.queue_range("quiet", 0) == (7, 7)
    assert put(store, 0, "quiet") == 7
    store.dispatch()
    store.abandon()
    again = opened(disk.after_crash(keep_all=True))
    assert again.reader.queue_range("quiet", 0) == (7, 8)
    assert put(again, 2, "quiet") == 8


def test_one_at_a_time_and_a_cut_ends_it() -> None:
    """A second rebuild is refused; a cut of the log makes the first give up, with the old views in place."""
    disk = CrashableDisk()
    store = filled(disk)
    steps = store.rebuild_views(STEP).steps()
    next(steps)()
    with pytest.raises(StoreError, match="already"):
        store.rebuild_views()
    store.truncate(store.reader.read(0).size)
    with pytest.raises(StoreError, match="the log was cut at"):
        next(steps)
    check(store, [0])
    rebuilt(store)
    check(store, [0])


def test_a_swap_that_fails_is_finished_by_the_next_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decided, then a rename fails: dispatch stops and says why, appends go on, a restart has everything."""
    disk = CrashableDisk()
    store = filled(disk)

    def refused(old: Path, new: Path) -> None:
        raise OSError("rename refused")

    steps = store.rebuild_views(1 << 20).steps()
    next(steps)()
    with monkeypatch.context() as patch:
        patch.setattr(CrashableDisk, "rename", lambda self, old, new: _rename(self, old, new, refused))
        with pytest.raises(StoreError, match="restart, which finishes it"):
            next(steps)
    put(store, 20)
    assert store.dispatch() == set()
    assert "restart" in store.status().reason
    store.abandon()
    check(opened(disk.after_crash(keep_all=True)), list(range(21)))


_whole_rename = CrashableDisk.rename


def _rename(disk: CrashableDisk, old: Path, new: Path, refused: Callable[[Path, Path], None]) -> None:
    """Directories refuse, the files of a replace_file do not."""
    (refused if old in disk.directories else lambda a, b: _whole_rename(disk, a, b))(old, new)


def test_on_a_real_disk(tmp_path: Path) -> None:
    """Directories are renamed under open descriptors and mappings; what is read and written then is the new files."""
    store = MessageStore.open(tmp_path, CONFIG, disk=FileDisk(), store_host=HOST)
    store.start()
    for number in range(30):
        put(store, number)
    store.dispatch()
    store.flush_all()
    check(store, list(range(30)))
    rebuilt(store)
    for number in range(30, 40):
        put(store, number)
    store.dispatch()
    check(store, list(range(40)))
    store.close()
    report = verify(FileDisk(), tmp_path, CONFIG)
    assert report.ok, report.problems
    assert report.records == report.queue_entries == 40
