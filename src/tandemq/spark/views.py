"""Rebuilding what a broker derives from its log: consume queues and key index, byte for byte as dispatch writes them.

Tasks over log ranges write queue entries straight to their places (a record says its queue offset) and leave the index
keys they met in order; tasks over index files then chain the keys. Formats: `store-format` facts of RocketMQ:

    queue entry  physicalOffset 8 | size 4 | tagsCode 8, at 20 × queue offset of the files taken together
    index file   header 40 | slots × 4 | entries × 20 (keyHash 4 | phyOffset 8 | seconds 4 | previous 4), entry 0 unused
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.codec.envelope import delay_level, delivery_time
from tandemq.codec.record import PHYSICAL_OFFSET_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT
from tandemq.errors import CorruptRecord
from tandemq.model.message import (
    KEYS,
    TAGS,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    UNIQUE_KEY,
    decode_properties,
    tags_code,
)
from tandemq.model.topic import SCHEDULE_TOPIC
from tandemq.spark.fields import Fields
from tandemq.spark.java_hash_columns import java_hashes, power_of_31
from tandemq.spark.property_columns import PropertyTexts
from tandemq.spark.scan import LogRange
from tandemq.spark.store_files import ENTRY, FILLER_SIZE, NAME_DIGITS, forget, mapped
from tandemq.spark.walk import End, looks_like_record, resynchronise, walk

KEY = np.dtype([("hash", "<u4"), ("offset", "<i8"), ("time", "<i8")])
"""One index key on its way from range tasks to file tasks."""
INDEX_ENTRY = np.dtype([("hash", ">u4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">u4")])
_HEADER = struct.Struct(">qqqqii")
_SECONDS_MAX = 0x7FFFFFFF
_WALK_BYTES = 32 << 20
_ROWS = 20_000


@dataclass(frozen=True)
class ViewSizes:
    """The sizes a store's views have."""

    queue_file: int
    index_slots: int
    index_entries: int
    delays_ms: tuple[int, ...]


@dataclass(frozen=True)
class RangeWork:
    """One log range to turn into entries."""

    piece: LogRange
    queues: str
    """Directory of the new consume queues."""
    keys: str
    """Directory for index keys."""
    sizes: ViewSizes


@dataclass(frozen=True)
class IndexWork:
    """One index file to build: keys [start, stop) of all keys, which lie in these files."""

    path: str
    sources: tuple[tuple[str, int, int], ...]
    """(file, first key, number of keys)."""
    previous: tuple[str, int] | None
    """(file, position) of the last key of the file before, whose time this one inherits."""
    sizes: ViewSizes


RESULT_DDL = "topic STRING, queue_id INT, first BIGINT, next BIGINT, start BIGINT, keys BIGINT"
RESULT = pa.schema(
    [("topic", pa.string()), ("queue_id", pa.int32()), ("first", pa.int64()), ("next", pa.int64()),
     ("start", pa.int64()), ("keys", pa.int64())]
)  # fmt: skip


def rebuild_range(work: RangeWork) -> Iterator[pa.RecordBatch]:
    """Writes the queue entries of a range and its index keys; yields per queue [first, next), and the number of
    keys.
    """
    bounds: dict[tuple[str, int], tuple[int, int]] = {}
    keys: list[npt.NDArray[Any]] = []
    for fields in _records(work.piece):
        topics = fields.gather(fields.topic_at, fields.topic_size).dictionary_encode()
        names = [_checked_topic(name, fields) for name in topics.dictionary.to_pylist()]
        texts = PropertyTexts(fields.gather(fields.properties_at, fields.properties_size))
        kinds = fields.sys_flag & TRANSACTION_MASK
        _write_entries(work, fields, np.asarray(topics.indices), names, texts, kinds, bounds)
        keys.append(_keys(fields, np.asarray(topics.indices), names, texts, kinds))
    found = np.concatenate(keys) if keys else np.empty(0, dtype=KEY)
    np.save(Path(work.keys) / f"{work.piece.start:0{NAME_DIGITS}d}.npy", found)
    rows = [
        {"topic": topic, "queue_id": queue_id, "first": first, "next": next_, "start": None, "keys": None}
        for (topic, queue_id), (first, next_) in bounds.items()
    ]
    rows.append(
        {"topic": None, "queue_id": None, "first": None, "next": None, "start": work.piece.start, "keys": len(found)}
    )
    yield pa.RecordBatch.from_pylist(rows, schema=RESULT)


def _records(piece: LogRange) -> Iterator[Fields]:
    """The records that begin in the range; damage is an error, a view must not hide it."""
    segment, base = piece.segment, piece.segment.start
    buffer = mapped(segment.path)
    at, stop, limit = piece.start - base, piece.stop - base, piece.limit - base
    if not piece.starts_at_record and not looks_like_record(buffer, at, limit, base):
        found = resynchronise(buffer, at, stop, limit, base)
        if found is None:
            return
        at = found
    while at < stop:
        steps = walk(buffer, at, min(stop, at + _WALK_BYTES), limit, base=base)
        for start in range(0, len(steps.positions), _ROWS):
            fields = Fields(buffer, steps.positions[start : start + _ROWS])
            problems = fields.broken()
            if problems:
                index, problem = next(iter(problems.items()))
                raise CorruptRecord(f"{segment.path}, physical offset {base + int(fields.positions[index])}: {problem}")
            yield fields
        forget(buffer, at, steps.next)
        at = steps.next
        if steps.end is End.BLANK:
            return
        if steps.end is not End.LIMIT:
            raise CorruptRecord(
                f"{segment.path}, physical offset {base + at}: {steps.end.value}; audit the store first"
            )


def _checked_topic(name: bytes, fields: Fields) -> str:
    topic = name.decode("utf-8", "replace")
    if "/" in topic or topic in ("", ".", ".."):
        raise CorruptRecord(f"a message has topic {topic!r}, which can't be a directory: audit the store first")
    return topic


def _write_entries(
    work: RangeWork,
    fields: Fields,
    topics: npt.NDArray[Any],
    names: list[str],
    texts: PropertyTexts,
    kinds: npt.NDArray[np.int32],
    bounds: dict[tuple[str, int], tuple[int, int]],
) -> None:
    """Prepared and rolled back messages are not in any queue."""
    queue_ids, offsets = fields.int32(QUEUE_ID_AT), fields.int64(QUEUE_OFFSET_AT)
    entries = np.zeros(len(fields), dtype=ENTRY)
    entries["offset"] = fields.int64(PHYSICAL_OFFSET_AT)
    entries["size"] = fields.size
    entries["tags"] = _tags_codes(work, fields, topics, names, texts)
    visible = (kinds != TRANSACTION_PREPARED) & (kinds != TRANSACTION_ROLLBACK)
    groups = topics.astype(np.int64) << 32 | queue_ids
    order = np.argsort(groups, kind="stable")
    order = order[visible[order]]
    for run in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        if not len(run):
            continue
        topic, queue_id = names[int(topics[run[0]])], int(queue_ids[run[0]])
        first, next_ = int(offsets[run[0]]), int(offsets[run[-1]]) + 1
        _place(work, topic, queue_id, offsets[run], entries[run])
        known = bounds.get((topic, queue_id))
        bounds[topic, queue_id] = (first, next_) if known is None else (min(known[0], first), max(known[1], next_))


def _place(
    work: RangeWork, topic: str, queue_id: int, offsets: npt.NDArray[np.int64], entries: npt.NDArray[Any]
) -> None:
    """Entries to their files; consecutive ones in one write."""
    folder = Path(work.queues) / topic / str(queue_id)
    folder.mkdir(parents=True, exist_ok=True)
    per_file = work.sizes.queue_file // ENTRY.itemsize
    numbers = offsets // per_file
    cuts = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(numbers) != 0)) + 1
    for run in np.split(np.arange(len(offsets)), cuts):
        number = int(numbers[run[0]])
        path = folder / f"{number * per_file * ENTRY.itemsize:0{NAME_DIGITS}d}"
        target = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.ftruncate(target, work.sizes.queue_file)
            os.pwrite(target, entries[run].tobytes(), (int(offsets[run[0]]) - number * per_file) * ENTRY.itemsize)
        finally:
            os.close(target)


def _tags_codes(
    work: RangeWork, fields: Fields, topics: npt.NDArray[Any], names: list[str], texts: PropertyTexts
) -> npt.NDArray[np.int64]:
    """The hash of TAGS; for delayed messages the time when they are due."""
    tags = texts.value_of(TAGS).dictionary_encode()
    codes = np.array([*(tags_code(tag) for tag in tags.dictionary.to_pylist()), 0], dtype=np.int64)
    result = codes[np.asarray(tags.indices.fill_null(len(codes) - 1)).astype(np.int64)]
    if SCHEDULE_TOPIC in names:
        raw = fields.gather(fields.properties_at, fields.properties_size)
        stored = fields.store_timestamp()
        for row in np.flatnonzero(topics == names.index(SCHEDULE_TOPIC)).tolist():
            level = min(delay_level(decode_properties(raw[row].as_py())), len(work.sizes.delays_ms))
            if level > 0:
                result[row] = delivery_time(int(stored[row]), level, work.sizes.delays_ms)
    return np.asarray(result)


def _keys(
    fields: Fields, topics: npt.NDArray[Any], names: list[str], texts: PropertyTexts, kinds: npt.NDArray[np.int32]
) -> npt.NDArray[Any]:
    """Index keys in the order of dispatch: of each message UNIQ_KEY, then each of KEYS. Rolled back ones have none."""
    unique = texts.value_of(UNIQUE_KEY)
    many = pc.split_pattern(texts.value_of(KEYS), " ")
    unique_rows = np.flatnonzero(np.asarray(unique.is_valid()))
    parents = np.asarray(pc.list_parent_indices(many)).astype(np.int64)
    words = many.flatten()
    filled = np.asarray(pc.greater(pc.binary_length(words), 0))
    rows = np.concatenate([unique_rows, parents[filled]])
    strings = pa.concat_arrays([unique.drop_null(), words.filter(pa.array(filled))])
    place = np.concatenate([np.zeros(len(unique_rows), dtype=np.int64), 1 + np.flatnonzero(filled)])
    heads = np.array([_hash(name + "#") for name in names], dtype=np.uint32)
    lengths = np.asarray(pc.utf8_length(strings)).astype(np.int64)
    if len(strings) and pc.max(pc.binary_length(strings)).as_py() != int(lengths.max(initial=0)):
        lengths = np.array([len(text.encode("utf-16-le")) // 2 for text in strings.to_pylist()], dtype=np.int64)
    hashes = heads[topics[rows]] * power_of_31(lengths) + java_hashes(strings)
    found = np.zeros(len(rows), dtype=KEY)
    signed = hashes.astype(np.int32).astype(np.int64)
    found["hash"] = np.where(signed == -(2**31), 0, np.abs(signed)).astype(np.uint32)
    found["offset"] = fields.int64(PHYSICAL_OFFSET_AT)[rows]
    found["time"] = fields.store_timestamp()[rows]
    order = np.lexsort((place, rows))
    order = order[kinds[rows[order]] != TRANSACTION_ROLLBACK]
    return np.asarray(found[order])


def _hash(text: str) -> int:
    from tandemq.model.message import java_hash

    return java_hash(text) & 0xFFFFFFFF


def build_index(work: IndexWork) -> Iterator[pa.RecordBatch]:
    """One index file from its keys: entries chained by slot, newest first."""
    parts = [np.load(path)[first : first + count] for path, first, count in work.sources]
    keys = np.concatenate(parts)
    slots, count = work.sizes.index_slots, len(keys)
    entries = np.zeros(count, dtype=INDEX_ENTRY)
    entries["hash"], entries["offset"] = keys["hash"], keys["offset"]
    begin = int(keys["time"][0])
    seconds = np.clip((keys["time"] - begin) // 1000, 0, _SECONDS_MAX)
    if work.previous is not None:
        # A new file first inherits the end of the full one: its first entry counts its seconds from there.
        inherited = int(np.load(work.previous[0])[work.previous[1]]["time"])
        seconds[0] = max(0, begin - inherited) // 1000
    else:
        seconds[0] = 0
    entries["seconds"] = seconds
    slot = keys["hash"].astype(np.int64) % slots
    order = np.argsort(slot, kind="stable")
    same = np.concatenate([[False], slot[order][1:] == slot[order][:-1]])
    previous = np.zeros(count, dtype=np.int64)
    previous[order[same]] = order[np.flatnonzero(same) - 1] + 1
    entries["previous"] = previous
    newest = np.zeros(slots, dtype=">u4")
    newest[slot[order]] = order + 1  # ascending within a slot: the last assignment is the newest
    header = _HEADER.pack(
        begin, int(keys["time"][-1]), int(keys["offset"][0]), int(keys["offset"][-1]), int(np.count_nonzero(newest)),
        count + 1,
    )  # fmt: skip
    size = _HEADER.size + 4 * slots + INDEX_ENTRY.itemsize * work.sizes.index_entries
    with open(work.path, "wb") as file:
        file.truncate(size)
        file.write(header)
        file.write(newest.tobytes())
        file.seek(INDEX_ENTRY.itemsize, os.SEEK_CUR)
        file.write(entries.tobytes())
        file.flush()
        os.fsync(file.fileno())
    row = {"topic": None, "queue_id": None, "first": None, "next": None, "start": 0, "keys": count}
    yield pa.RecordBatch.from_pylist([row], schema=RESULT)


def fill_start(queues: str, topic: str, queue_id: int, first: int, sizes: ViewSizes) -> None:
    """A queue whose history begins late: the entries before it in its first file say so."""
    per_file = sizes.queue_file // ENTRY.itemsize
    number, inside = divmod(first, per_file)
    if inside:
        filler = np.zeros(inside, dtype=ENTRY)
        filler["size"] = FILLER_SIZE
        path = Path(queues) / topic / str(queue_id) / f"{number * per_file * ENTRY.itemsize:0{NAME_DIGITS}d}"
        with open(path, "r+b") as file:
            file.write(filler.tobytes())
