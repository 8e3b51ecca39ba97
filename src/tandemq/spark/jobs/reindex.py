"""Consume queues and key index of a store rebuilt from its log, in parallel, or only checked against it.

The new views are built beside the old ones and take their place at the end by renames. The broker must be stopped: the
store's lock is taken while the job runs. Every executor must see the store's directory.
"""

import fcntl
import filecmp
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tandemq import private
from tandemq.clock import Clock, SystemClock
from tandemq.errors import ConfigError
from tandemq.formats import layout
from tandemq.formats.envelope import DELAY_LEVELS_DEFAULT, parse_delay_levels
from tandemq.formats.index_file import file_size
from tandemq.spark.jobs.derived_views import (
    RESULT_DDL,
    IndexWork,
    RangeWork,
    ViewSizes,
    build_index,
    fill_start,
    keys_file,
    rebuild_range,
)
from tandemq.spark.jobs.tasks import run_tasks
from tandemq.spark.source.scan import plan_ranges
from tandemq.spark.source.store_files import StoreFiles, find_stores, log_end

QUEUE_FILE_SIZE = 6_000_000
INDEX_SLOTS = 5_000_000
INDEX_ENTRIES = 20_000_000
RANGE_BYTES = 128 << 20
_NEW, _OLD, _KEYS = "reindex-new", "reindex-old", "reindex-keys"


@dataclass
class ReindexResult:
    """What was rebuilt; with check only, which files differ from the log."""

    messages_end: int = 0
    queues: int = 0
    entries: int = 0
    keys: int = 0
    index_files: int = 0
    checked_only: bool = False
    different: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def reindex(
    spark: Any,
    path: str,
    *,
    check: bool = False,
    queue_file_size: int = 0,
    index_slots: int = 0,
    index_entries: int = 0,
    delay_levels: str = DELAY_LEVELS_DEFAULT,
    say: Callable[[str], None] = lambda text: None,
    clock: Clock | None = None,
) -> ReindexResult:
    """Builds the views of a store. `check` compares and changes nothing; sizes of 0 are taken from the files there."""
    clock = clock or SystemClock()
    started = clock.monotonic()
    stores = find_stores(path)
    if len(stores) != 1:
        raise ConfigError(f"path={path!r} names {len(stores)} stores: reindex takes one")
    store = stores[0]
    sizes = _sizes(store.root, queue_file_size, index_slots, index_entries, delay_levels)
    result = ReindexResult(checked_only=check)
    with _locked(store.root, check):
        new = store.root / _NEW
        for folder in (new, store.root / _KEYS):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(private.DIRECTORY_MODE)
        try:
            _build(spark, store, sizes, result, say)
            if check:
                result.different = _different(store.root, new)
            else:
                _swap(store.root, new)
        finally:
            shutil.rmtree(store.root / _KEYS, ignore_errors=True)
            shutil.rmtree(new, ignore_errors=True)
    result.seconds = clock.monotonic() - started
    return result


def _sizes(root: Path, queue_file: int, slots: int, entries: int, delay_levels: str) -> ViewSizes:
    queue_file = queue_file or _first_size(root / layout.CONSUME_QUEUE) or QUEUE_FILE_SIZE
    slots, entries = slots or INDEX_SLOTS, entries or INDEX_ENTRIES
    there = _first_size(root / layout.INDEX)
    expected = file_size(slots, entries)
    if there and there != expected:
        raise ConfigError(
            f"the index files of {root} have {there} bytes, {slots} slots and {entries} entries make {expected}: give "
            "--index-slots and --index-entries as the broker's maxHashSlotNum and maxIndexNum"
        )
    return ViewSizes(queue_file, slots, entries, parse_delay_levels(delay_levels))


def _first_size(folder: Path) -> int:
    for found in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if found.is_file() and found.name.isdecimal():
            return found.stat().st_size
    return 0


@contextmanager
def _locked(root: Path, check: bool) -> Iterator[None]:
    """Holds the lock that a broker holds on its store. A check of a live store only reads, but what it sees moves."""
    path = root / layout.LOCK
    handle = os.open(path, os.O_RDWR | os.O_CREAT, private.FILE_MODE)
    try:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            what = "check" if check else "rebuild"
            raise ConfigError(f"{root} is in use by a running broker: stop it to {what} its queues and index") from None
        yield
    finally:
        os.close(handle)


def _build(spark: Any, store: StoreFiles, sizes: ViewSizes, result: ReindexResult, say: Callable[[str], None]) -> None:
    segments = store.segments()
    end = log_end(segments, None)
    result.messages_end = end
    new, keys = store.root / _NEW, store.root / _KEYS
    (new / layout.CONSUME_QUEUE).mkdir(private.DIRECTORY_MODE)
    (new / layout.INDEX).mkdir(private.DIRECTORY_MODE)
    pieces = plan_ranges(store.label, segments, segments[0].start, end, RANGE_BYTES)
    say(f"reading {end - segments[0].start:,} bytes of log in {len(pieces)} tasks")
    work = [RangeWork(piece, str(new / layout.CONSUME_QUEUE), str(keys), sizes) for piece in pieces]
    rows = run_tasks(spark, work, rebuild_range, RESULT_DDL).collect()
    bounds: dict[tuple[str, int], tuple[int, int]] = {}
    counts: dict[int, int] = {}
    for row in rows:
        if row["topic"] is None:
            counts[row["start"]] = row["keys"]
            continue
        known = bounds.get((row["topic"], row["queue_id"]), (row["first"], row["next"]))
        bounds[row["topic"], row["queue_id"]] = (min(known[0], row["first"]), max(known[1], row["next"]))
    for (topic, queue_id), (first, next_) in bounds.items():
        fill_start(str(new / layout.CONSUME_QUEUE), topic, queue_id, first, sizes)
        result.entries += next_ - first
    result.queues = len(bounds)
    _build_index(spark, store.root, counts, sizes, result, say)


def _build_index(
    spark: Any, root: Path, counts: dict[int, int], sizes: ViewSizes, result: ReindexResult, say: Callable[[str], None]
) -> None:
    parts = [(str(keys_file(root / _KEYS, start)), counts[start]) for start in sorted(counts) if counts[start]]
    result.keys = sum(count for _, count in parts)
    per_file = sizes.index_entries - 1
    total = -(-result.keys // per_file)
    names = _index_names(root / layout.INDEX, total, parts, per_file)
    works = []
    for number in range(total):
        start, stop = number * per_file, min(result.keys, (number + 1) * per_file)
        sources = tuple(_slices(parts, start, stop))
        previous = None
        if number:
            path, first, count = next(iter(_slices(parts, start - 1, start)))
            previous = (path, first + count - 1)
        works.append(IndexWork(str(root / _NEW / layout.INDEX / names[number]), sources, previous, sizes))
    say(f"chaining {result.keys:,} keys into {total} index files")
    run_tasks(spark, works, build_index, RESULT_DDL).collect()
    result.index_files = total


def _slices(parts: list[tuple[str, int]], start: int, stop: int) -> Iterator[tuple[str, int, int]]:
    """Returns the pieces of the key files that hold keys [start, stop)."""
    at = 0
    for path, count in parts:
        low, high = max(start, at), min(stop, at + count)
        if low < high:
            yield path, low - at, high - low
        at += count


def _index_names(folder: Path, total: int, parts: list[tuple[str, int]], per_file: int) -> list[str]:
    """Returns the names there are, if the number of files fits; else the time of each file's first message."""
    import numpy as np

    names = sorted(f.name for f in folder.iterdir() if f.name.isdecimal()) if folder.is_dir() else []
    if len(names) == total:
        return names
    made: list[str] = []
    for number in range(total):
        path, first, _ = next(iter(_slices(parts, number * per_file, number * per_file + 1)))
        time = int(np.load(path)[first]["time"])
        while True:
            name = datetime.fromtimestamp(time / 1000, UTC).strftime("%Y%m%d%H%M%S") + f"{time % 1000:03d}"
            if name not in made:
                break
            time += 1
        made.append(name)
    return made


def _different(root: Path, new: Path) -> list[str]:
    """Returns the files that are not the same in the store and in what its log gives."""
    found = []
    for view in (layout.CONSUME_QUEUE, layout.INDEX):
        ours = {str(f.relative_to(new)) for f in (new / view).rglob("*") if f.is_file()}
        theirs = {str(f.relative_to(root)) for f in (root / view).rglob("*") if f.is_file()}
        found += sorted(ours ^ theirs)
        found += sorted(name for name in ours & theirs if not filecmp.cmp(new / name, root / name, shallow=False))
    return found


def _swap(root: Path, new: Path) -> None:
    """Replaces the old views; a crash in between leaves a store that recovers by dispatching its log again."""
    old = root / _OLD
    shutil.rmtree(old, ignore_errors=True)
    old.mkdir(private.DIRECTORY_MODE)
    for view in (layout.CONSUME_QUEUE, layout.INDEX):
        if (root / view).exists():
            os.rename(root / view, old / view)
        os.rename(new / view, root / view)
    handle = os.open(root, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    shutil.rmtree(old)
