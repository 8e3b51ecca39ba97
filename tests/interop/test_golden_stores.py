"""Stores that real brokers wrote open here, and every message is what upstream's Java client read from them."""

import shutil
from pathlib import Path

import pytest
from tests.golden import manifest, unpack

from tandemq.formats.envelope import decode_op_body
from tandemq.formats.record import parse_record
from tandemq.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tandemq.store.config import StoreConfig
from tandemq.store.describe import describe
from tandemq.store.discover import discover_config
from tandemq.store.disk import FileDisk
from tandemq.store.message_store import GetStatus, MessageStore

SIZES = StoreConfig(
    commit_log_segment_size=262144,
    consume_queue_segment_size=4000,
    index_slots=1000,
    index_entries=2000,
    message_size_max=65536,
)
STORES = [(v, s) for v in ("4.9.7", "5.3.3") for s in ("master-killed", "master-clean", "slave-clean")]
FOREVER = 1 << 62


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden")
    for version in ("4.9.7", "5.3.3"):
        unpack(version, root / version)
    return root


def as_client_sees(described: dict) -> dict:
    """The client adds the queue's range to the properties it got; the 5.x client clears the bit of what it unpacked."""
    kept = {k: v for k, v in described["properties"].items() if k not in ("MIN_OFFSET", "MAX_OFFSET")}
    sys_flag = described["sysFlag"]
    return {**described, "properties": kept, "sysFlag": sys_flag & ~1 if sys_flag & 0x700 else sys_flag}


def queue_messages(store: MessageStore, topic: str, queue_id: int) -> list:
    found = []
    lowest, highest = store.reader.queue_range(topic, queue_id)
    while lowest < highest:
        result = store.reader.get(topic, queue_id, lowest, 64, 1 << 20)
        assert result.status is GetStatus.FOUND
        for piece in result.slices:
            position = 0
            while position < len(piece):
                found.append(parse_record(piece, position, crc=True))
                position += found[-1].size
        lowest = result.next_offset
    return found


@pytest.mark.parametrize(("version", "which"), STORES)
@pytest.mark.parametrize("read_only", [True, False])
def test_every_message_of_the_manifest_is_read_back(
    unpacked: Path, tmp_path: Path, version: str, which: str, read_only: bool
) -> None:
    """By queue, by physical offset and by key, in a store opened as the tools do and as a broker does."""
    root = unpacked / version / which
    if not read_only:
        root = Path(shutil.copytree(root, tmp_path / which))
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*")}
    config = discover_config(FileDisk(), root)
    store = MessageStore.open(root, config, read_only=read_only)
    messages, committed = manifest(version)
    by_queue: dict[tuple[str, int], list[dict]] = {}
    for message in messages:
        by_queue.setdefault((message["topic"], message["queueId"]), []).append(message)
    for (topic, queue_id), expected in by_queue.items():
        found = [as_client_sees(describe(m)) for m in queue_messages(store, topic, queue_id)]
        assert found == [as_client_sees(e) for e in expected]
    for message in messages[::7]:
        assert describe(store.reader.read(message["physicalOffset"]))["bodySha256"] == message["bodySha256"]
        unique = message["properties"].get("UNIQ_KEY")
        # Upstream lost a part of this index when it recovered: it dispatches only what it scans.
        if unique and which != "master-clean" and not (read_only and which == "master-killed"):
            hits = [m.physical_offset for m in store.reader.query(message["topic"], unique, 32, 0, FOREVER)]
            assert message["physicalOffset"] in hits
    for entry in committed:
        assert store.reader.queue_range(entry["topic"], entry["queueId"])[1] == entry["max"]
    store.close()
    if read_only:
        assert {p: p.stat().st_mtime_ns for p in root.rglob("*")} == before


@pytest.mark.parametrize(("version", "which"), STORES)
def test_sizes_are_found_from_the_files(unpacked: Path, version: str, which: str) -> None:
    """Read-only tools need no settings."""
    config = discover_config(FileDisk(), unpacked / version / which)
    assert config.commit_log_segment_size == SIZES.commit_log_segment_size
    assert config.consume_queue_file_size == SIZES.consume_queue_file_size
    assert (config.index_slots, config.index_entries) == (SIZES.index_slots, SIZES.index_entries)


@pytest.mark.parametrize(("version", "which"), STORES)
def test_views_built_anew_equal_what_the_real_broker_built(
    unpacked: Path, tmp_path: Path, version: str, which: str
) -> None:
    """Every consume-queue entry, tags codes and delivery times included, byte for byte."""
    root = Path(shutil.copytree(unpacked / version / which, tmp_path / which))
    theirs = {
        path.relative_to(root): path.read_bytes()
        for path in sorted((root / "consumequeue").rglob("*"))
        if path.is_file()
    }
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    (root / "checkpoint").unlink()
    MessageStore.open(root, SIZES).close()
    ours = {
        path.relative_to(root): path.read_bytes()
        for path in sorted((root / "consumequeue").rglob("*"))
        if path.is_file() and any(path.read_bytes())
    }
    assert ours == {path: data for path, data in theirs.items() if any(data)}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_killed_store_is_recovered_and_goes_on(unpacked: Path, tmp_path: Path, version: str) -> None:
    """Abort marker, preallocated next segment: appends continue with the next queue offset; a clean close follows."""
    root = Path(shutil.copytree(unpacked / version / "master-killed", tmp_path / "store"))
    store = MessageStore.open(root, SIZES)
    assert store.recovered is not None
    assert not store.recovered.clean
    highest = store.reader.queue_range("plain", 0)[1]
    appended = store.append("plain", 0, 0, 0, 1, bytes(8), 0, 0, b"after the crash", b"KEYS\x01after\x02")
    assert appended.queue_offset == highest
    store.dispatch()
    store.close()
    assert not (root / "abort").exists()
    again = MessageStore.open(root, SIZES)
    assert again.recovered is not None
    assert again.recovered.clean
    assert [m.body for m in again.reader.query("plain", "after", 10, 0, FOREVER)] == [b"after the crash"]
    again.close()


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_delay_and_transaction_records_lie_as_upstream_puts_them(unpacked: Path, version: str) -> None:
    """The schedule queue is ordered by delivery time; op records name half messages."""
    store = MessageStore.open(unpacked / version / "master-clean", SIZES, read_only=True)
    levels = [queue_id for topic, queue_id in store.reader.queues() if topic == SCHEDULE_TOPIC]
    assert 17 in levels
    for queue_id in levels:
        for message in queue_messages(store, SCHEDULE_TOPIC, queue_id):
            assert message.properties["REAL_TOPIC"] == "delay"
    halves = queue_messages(store, TRANS_HALF_TOPIC, 0)
    assert all(m.properties["REAL_TOPIC"] == "tx" for m in halves)
    decided = {offset for m in queue_messages(store, TRANS_OP_HALF_TOPIC, 0) for offset in decode_op_body(m.body)}
    assert len(decided) >= 8
    assert decided <= {m.queue_offset for m in halves}
    store.close()


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_master_and_slave_wrote_the_same_log(unpacked: Path, version: str) -> None:
    """Up to where the slave stopped."""
    master = MessageStore.open(unpacked / version / "master-killed", SIZES, read_only=True)
    slave = MessageStore.open(unpacked / version / "slave-clean", SIZES, read_only=True)
    position, end = 0, min(master.appended, slave.appended)
    while position < end:
        size = min(65536, end - position, SIZES.commit_log_segment_size - position % SIZES.commit_log_segment_size)
        assert master.slice(position, size) == slave.slice(position, size)
        position += size
    master.close()
    slave.close()


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_index_built_anew_equals_what_the_real_broker_built(unpacked: Path, tmp_path: Path, version: str) -> None:
    """Header, slots and entries, byte for byte; only the files' names, which are creation times, differ."""
    root = Path(shutil.copytree(unpacked / version / "slave-clean", tmp_path / "store"))
    theirs = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    shutil.rmtree(root / "index")
    MessageStore.open(root, SIZES).close()
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == theirs
