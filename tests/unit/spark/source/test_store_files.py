"""Store directories read as files: golden stores equal their manifest; cuts, tails and damage are told apart."""

import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.golden import manifest, unpack

from tandemq.errors import ConfigError, CorruptLog, CorruptRecord
from tandemq.formats.checkpoint import Checkpoint, CheckpointFile, ViewsPoint
from tandemq.spark.columns import CORRUPT, default_arrow_schema
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.scan import plan_ranges, scan, scan_entries
from tandemq.spark.source.store_files import StoreFiles, find_stores, log_end, missing_end

COLUMNS = default_arrow_schema(
    ["topic", "queue_id", "queue_offset", "physical_offset", "flag", "sys_flag", "born_timestamp", "store_timestamp",
     "born_host", "store_host", "body_crc", "reconsume_times", "prepared_transaction_offset", "record_size", "msg_id",
     "properties", "body"]
)  # fmt: skip


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def golden(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, Any]]]:
    root = unpack(request.param, tmp_path_factory.mktemp("golden"))
    return root, manifest(request.param)[0]


def read_physical(store: StoreFiles, size_max: int = 1 << 30, **options: Any) -> list[dict[str, Any]]:
    segments = store.segments()
    end = log_end(segments, None)
    rows = []
    schema = options.pop("schema", COLUMNS)
    for piece in plan_ranges(store.label, segments, segments[0].start, end, size_max):
        for batch in scan(piece, Decoder(schema, broker=store.label, **options), 1000):
            rows += batch.to_pylist()
    return rows


def as_manifest(row: dict[str, Any]) -> dict[str, Any]:
    """A row in the words of the manifest, which is what upstream's Java client decoded."""
    return {
        "topic": row["topic"], "queueId": row["queue_id"], "queueOffset": row["queue_offset"],
        "physicalOffset": row["physical_offset"], "storeSize": row["record_size"], "flag": row["flag"],
        "sysFlag": row["sys_flag"] & ~1, "bornTimestamp": round(row["born_timestamp"].timestamp() * 1000),
        "bornHost": "/" + row["born_host"], "storeTimestamp": round(row["store_timestamp"].timestamp() * 1000),
        "storeHost": "/" + row["store_host"], "bodyCRC": row["body_crc"], "reconsumeTimes": row["reconsume_times"],
        "preparedTransactionOffset": row["prepared_transaction_offset"], "msgId": row["msg_id"],
        "bodyLength": len(row["body"]), "bodySha256": hashlib.sha256(row["body"]).hexdigest(),
        "properties": dict(row["properties"]),
    }  # fmt: skip


def without_client_properties(entry: dict[str, Any]) -> dict[str, Any]:
    """The Java client adds these two on receipt (they are not in the log), and 5.x clears the compressed bit it
    acted on.
    """
    kept = {k: v for k, v in entry["properties"].items() if k not in ("MIN_OFFSET", "MAX_OFFSET")}
    return {**entry, "sysFlag": entry["sysFlag"] & ~1, "properties": kept}


@pytest.mark.parametrize("name", ["master-killed", "slave-clean", "master-clean"])
@pytest.mark.parametrize("order", ["physical", "queue"])
def test_golden_stores_equal_their_manifest(golden: tuple[Path, list[dict[str, Any]]], name: str, order: str) -> None:
    """Every message that upstream's own client saw, field by field, in both orders, whatever the cut."""
    root, manifest = golden
    (store,) = find_stores(str(root / name))
    segments = store.segments()
    topics = {entry["topic"] for entry in manifest}
    if order == "physical":
        rows = read_physical(store, size_max=70_000)
        assert rows == read_physical(store)
    else:
        rows = []
        end = log_end(segments, None)
        for topic, queue_id in store.queues():
            queue = store.queue(topic, queue_id)
            first, next_ = queue.bounds(segments[0].start, end)
            for batch in scan_entries(segments, queue.entries(first, next_), Decoder(COLUMNS), 1000, never):
                rows += batch.to_pylist()
    found = {row["physical_offset"]: as_manifest(row) for row in rows if row["topic"] in topics}
    expected = {entry["physicalOffset"]: without_client_properties(entry) for entry in manifest}
    for offset, entry in expected.items():
        assert found.pop(offset) == entry
    assert not [row for row in found.values() if row["queueOffset"] >= 0 and order == "queue"]


@pytest.fixture
def store(golden: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> StoreFiles:
    """A store of our own to damage."""
    shutil.copytree(golden[0] / "slave-clean", tmp_path / "store")
    return StoreFiles(tmp_path / "store", "broker")


def patch(store: StoreFiles, physical_offset: int, data: bytes) -> None:
    segment = next(s for s in store.segments() if s.start <= physical_offset < s.stop)
    with open(segment.path, "r+b") as file:
        file.seek(physical_offset - segment.start)
        file.write(data)


def test_every_cut_of_a_log_gives_the_same_rows(store: StoreFiles) -> None:
    """Ranges of any size: no message lost, none twice."""
    whole = read_physical(store)
    for size in (65_536, 100_001, 30_000):
        assert read_physical(store, size_max=size) == whole


@pytest.mark.parametrize("size_max", [1 << 30, 40_000])
def test_a_damaged_size_is_an_error_that_names_file_and_offset(store: StoreFiles, size_max: int) -> None:
    """Permissive skips to the next record, reports once, and finds everything else."""
    rows = read_physical(store)
    victims = [rows[len(rows) // 3], rows[len(rows) // 2]]
    for victim in victims:
        patch(store, victim["physical_offset"], b"\x00\x00\x00\x07")
    with pytest.raises(CorruptRecord, match=rf"commitlog/\d{{20}}, physical offset {victims[0]['physical_offset']}"):
        read_physical(store, size_max=size_max)
    schema = default_arrow_schema(["physical_offset", CORRUPT])
    seen = read_physical(store, size_max=size_max, permissive=True, schema=schema)
    good = [row["physical_offset"] for row in seen if row[CORRUPT] is None]
    assert sorted(good) == [r["physical_offset"] for r in rows if r not in victims]
    assert [row["physical_offset"] for row in seen if row[CORRUPT]] == [v["physical_offset"] for v in victims]


def test_damage_is_reported_once_however_the_log_is_cut(store: StoreFiles) -> None:
    """Also when a cut falls exactly on, just before or just after the damaged place."""
    rows = read_physical(store)
    segments = store.segments()
    victim = rows[40]["physical_offset"]
    patch(store, victim + 4, b"XXXX")
    end = log_end(segments, None)
    schema = default_arrow_schema(["physical_offset", CORRUPT])
    for cut in (victim - 1, victim, victim + 1, victim + 60):
        pieces = plan_ranges("b", segments, 0, end, 1 << 30)
        first = pieces[0]
        from dataclasses import replace

        halves = [replace(first, stop=cut, stops_at_record=False), replace(first, start=cut, starts_at_record=False)]
        seen = [
            row
            for piece in halves
            for batch in scan(piece, Decoder(schema, permissive=True), 1000)
            for row in batch.to_pylist()
        ]
        assert [row["physical_offset"] for row in seen if row[CORRUPT]] == [victim], cut
        assert (
            len([row for row in seen if not row[CORRUPT]])
            == sum(r["physical_offset"] < first.segment.stop for r in rows) - 1
        )


def test_a_torn_tail_ends_the_log_silently(store: StoreFiles) -> None:
    """Half a record at the very end is what a crash leaves; a broker would cut it off."""
    rows = read_physical(store)
    last = rows[-1]
    patch(store, last["physical_offset"] + last["record_size"] // 2, bytes(last["record_size"]))
    segments = store.segments()
    assert log_end(segments, None) in (last["physical_offset"], last["physical_offset"] + last["record_size"])
    patch(store, last["physical_offset"], b"\x7f")
    assert log_end(segments, None) == last["physical_offset"]
    assert read_physical(store) == rows[:-1]


def test_the_end_never_passes_the_limit_and_is_a_boundary(store: StoreFiles) -> None:
    """A confirmed offset inside a record gives the boundary before it."""
    segments = store.segments()
    starts = [row["physical_offset"] for row in read_physical(store)]
    rng = random.Random(3)
    for _ in range(20):
        index = rng.randrange(1, len(starts))
        assert log_end(segments, starts[index]) == starts[index] or log_end(segments, starts[index]) in starts
        assert log_end(segments, starts[index] + 3) <= starts[index] + 3
    assert log_end(segments, 0) == 0


@pytest.mark.parametrize("leap", [97, 1000, 20_011])
def test_leaps_end_where_walking_does(store: StoreFiles, leap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits anywhere, and with damage on the way."""
    segments = store.segments()
    starts = [row["physical_offset"] for row in read_physical(store)]
    limits: list[int | None] = [None, *(start + 3 for start in starts[1::40]), *starts[1::40]]
    for _ in range(2):
        monkeypatch.undo()
        walked = [log_end(segments, limit) for limit in limits]
        monkeypatch.setattr("tandemq.spark.source.store_files._LEAP_BYTES", leap)
        assert [log_end(segments, limit) for limit in limits] == walked
        patch(store, starts[-30], b"\x00\x00\x00\x07")


def test_the_confirmed_offset_of_our_stores_is_found(store: StoreFiles) -> None:
    """RocketMQ's own stores know none; ours have replica.json, and the checkpoint moves ahead of it."""
    assert store.confirmed() is None
    (store.root / "replica.json").write_text(json.dumps({"content": {"confirmed": 1000}, "crc": 0}))
    views = ViewsPoint(offset=9000, queue_entries=1, index_name="", index_count=0, clean=False, boot_id=bytes(16))
    for confirmed, expected in ((0, 1000), (5000, 5000)):
        point = Checkpoint(log_timestamp=1_700_000_000_000, confirmed_offset=confirmed, views=views)
        (store.root / "checkpoint").write_bytes(CheckpointFile().written(point))
        assert store.confirmed() == expected


def test_a_missing_segment_is_named(store: StoreFiles) -> None:
    """A hole in the log is never read over."""
    Path(store.segments()[1].path).unlink()
    with pytest.raises(CorruptLog, match="a segment is missing or cut"):
        store.segments()


def never(first: int, last: int) -> None:
    raise AssertionError(f"entries {first} to {last} are gone")


def test_entries_whose_segments_are_gone_are_told(store: StoreFiles) -> None:
    """Once, by their first and last; the others are read."""
    segments = store.segments()
    queue = store.queue("plain", 0)
    entries = queue.entries(*queue.bounds(0, log_end(segments, None))).copy()
    entries["offset"][2:5] = segments[-1].stop + 1000
    gone: list[tuple[int, int]] = []
    found = scan_entries(segments, entries, Decoder(COLUMNS), 100, lambda *place: gone.append(place))
    assert sum(batch.num_rows for batch in found) == len(entries) - 3
    assert gone == [(2, 4)]
    before = [segment._replace(path=segment.path + ".gone") for segment in segments]
    gone.clear()
    entries["offset"][2:5] = entries["offset"][1]
    assert list(scan_entries(before, entries, Decoder(COLUMNS), 100, lambda *place: gone.append(place))) == []
    assert gone == [(0, len(entries) - 1)]


def test_a_copy_that_was_cut_is_told_with_numbers(store: StoreFiles, tmp_path: Path) -> None:
    """By what the store knows to be confirmed, or by a message that goes beyond the end of its file."""
    segments = store.segments()
    end = log_end(segments, None)
    assert missing_end(segments, end, None) == missing_end(segments, end, end) == ""
    assert f"ends at {end}, but was confirmed up to {end + 5}: 5 bytes" in missing_end(segments, end, end + 5)
    path = Path(segments[-1].path)
    os.truncate(path, end - segments[-1].start - 3)
    cut = store.segments()
    new_end = log_end(cut, None)
    assert new_end < end - 3
    assert f"within the message at {new_end}" in missing_end(cut, new_end, None)


def test_a_broker_name_is_for_one_store(store: StoreFiles, tmp_path: Path) -> None:
    """Two stores under one name would be taken for one."""
    shutil.copytree(store.root, tmp_path / "broker-b" / "store")
    assert find_stores(str(store.root), "mine")[0].label == "mine"
    with pytest.raises(ConfigError, match=r"brokerName='mine' is the name of one store, but .* names 2"):
        find_stores(f"{store.root},{tmp_path}/broker-b/store", "mine")


def test_a_consume_queue_that_points_nowhere_is_damage(store: StoreFiles) -> None:
    """Entry and record must agree."""
    segments = store.segments()
    queue = store.queue("plain", 0)
    entries = queue.entries(*queue.bounds(0, log_end(segments, None))).copy()
    entries["size"][3] += 1
    with pytest.raises(CorruptRecord, match="as the consume queue says"):
        list(scan_entries(segments, entries, Decoder(COLUMNS), 100, never))
    with pytest.raises(CorruptLog, match="entries 0 to 99999 were asked for"):
        queue.entries(0, 100_000)


def test_paths_are_checked_and_labelled(store: StoreFiles, tmp_path: Path) -> None:
    """Globs, several stores, `…/store` named after its parent; nothing found is an error."""
    shutil.copytree(store.root, tmp_path / "broker-b" / "store")
    found = find_stores(f"{store.root},{tmp_path}/broker-*/store")
    assert [s.label for s in found] == [tmp_path.name, "broker-b"]
    with pytest.raises(ConfigError, match="is no directory"):
        find_stores(str(tmp_path / "nowhere*"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no commit log"):
        find_stores(str(tmp_path / "empty"))
