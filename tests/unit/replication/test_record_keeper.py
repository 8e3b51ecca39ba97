"""RecordKeeper: a record is made once, completed from the store, and on disk when something rests on it."""

from pathlib import Path

from tandemq.clock import SystemClock
from tandemq.codec.ha_session import EpochItem
from tandemq.replication import replica_file
from tandemq.replication.epochs import ReplicaRecord, from_items
from tandemq.replication.first_copy import Compared
from tandemq.replication.hands import StoreHands
from tandemq.replication.record_keeper import RecordKeeper, known_confirmed
from tandemq.sim.disk import CrashableDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore

ROOT = Path("/store")
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
HISTORY = from_items([EpochItem(1, "e1", 0)])


class Node:
    def __init__(self, record: ReplicaRecord | None = None, *, messages: int = 0) -> None:
        self.disk = CrashableDisk()
        self.disk.make_directory(ROOT)
        if record is not None:
            replica_file.save(self.disk, ROOT, record)
        config = StoreConfig(commit_log_segment_size=1 << 16)
        self.store = MessageStore.open(ROOT, config, clock=SystemClock(), disk=self.disk)
        for _ in range(messages):
            self.store.append("T", 0, 0, 0, 1, HOST, 0, 0, b"body", b"")
        self.keeper = self.restarted()

    def restarted(self) -> RecordKeeper:
        hands = StoreHands(self.store, self.disk, ROOT, SystemClock())
        return RecordKeeper(self.store, hands, self.disk, ROOT, "a:1")

    @property
    def on_disk(self) -> ReplicaRecord:
        record = replica_file.load(self.disk, ROOT)
        assert record is not None
        return record


def test_a_new_store_gets_an_identity_once() -> None:
    node = Node()
    assert node.keeper.record.replica.startswith("a:1#")
    assert node.on_disk.replica == node.keeper.record.replica == node.restarted().record.replica
    assert node.keeper.record.blind_from == 0


def test_a_log_that_rocketmq_wrote_is_its_own() -> None:
    assert Node(messages=1).keeper.record.blind_from == -1


def test_a_store_made_from_a_backup_keeps_its_history_and_is_somebody_new() -> None:
    node = Node(ReplicaRecord("", history=HISTORY))
    assert node.keeper.record.replica.startswith("a:1#")
    assert node.on_disk.history == HISTORY


def test_what_readers_saw_is_confirmed_whatever_the_record_says() -> None:
    node = Node(ReplicaRecord("a:1#1", history=HISTORY), messages=3)
    node.store.dispatch()
    assert node.restarted().record.confirmed == node.store.dispatched > 0


def test_a_role_and_what_was_confirmed_are_remembered_on_disk() -> None:
    node = Node(ReplicaRecord("a:1#1", history=HISTORY))
    node.keeper.remember_role("SLAVE")
    node.keeper.remember_confirmed(77)
    assert (node.on_disk.role, node.on_disk.confirmed) == ("SLAVE", 77)
    node.keeper.remember_compared(Compared((0, 10), 500), (events := []).append)
    assert (node.on_disk.lacks, node.on_disk.copying_to, events) == ((0, 10), 500, ["lacks-history"])


def test_what_a_machine_has_saved_is_the_record_from_then_on() -> None:
    node = Node(ReplicaRecord("a:1#1", history=HISTORY))
    assert not node.keeper.is_holder
    newer = node.keeper.record.with_(confirmed=9)
    node.keeper.saved(newer)
    assert node.keeper.record is newer
    assert node.keeper.register is None


def test_a_store_without_a_history_knows_nothing_confirmed(tmp_path: Path) -> None:
    assert known_confirmed(tmp_path) is None
