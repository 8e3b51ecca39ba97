"""Many keys into an index file at once; the outcome is the one of putting them one by one."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tandemq.formats.index_file import ENTRY_COLUMNS, ENTRY_SIZE, HEADER_SIZE, SECONDS_MAX, IndexFile

Array: TypeAlias = npt.NDArray[Any]
ENTRY = np.dtype(list(ENTRY_COLUMNS))


def put_some(file: IndexFile, hashes: Array, offsets: Array, times: Array, start: int) -> int:
    """Does what IndexFile.put_some does, with arrays. Returns how far it came: all are in, or the file is full."""
    if file.count <= 1:
        file.put_first(int(hashes[start]), int(offsets[start]), int(times[start]))
        return start + 1
    stop, count = file.make_room(start, len(hashes)), file.count
    numbers = np.arange(count, count + stop - start)
    places = hashes[start:stop].astype(np.int64) % file.slots
    slots = np.frombuffer(file.view, dtype=">u4", count=file.slots, offset=HEADER_SIZE)
    previous = slots[places].astype(np.int64)
    previous[previous >= count] = 0  # damage, or another program's leftovers
    order = np.argsort(places, kind="stable")
    repeats = np.diff(places[order]) == 0
    previous[order[1:][repeats]] = numbers[order[:-1][repeats]]

    entries = np.empty(stop - start, dtype=ENTRY)
    entries["hash"], entries["offset"] = hashes[start:stop], offsets[start:stop]
    entries["seconds"] = np.clip((times[start:stop] - file.begin_timestamp) // 1000, 0, SECONDS_MAX)
    entries["previous"] = previous
    at = file.entry_at(count)
    file.view[at : at + ENTRY_SIZE * len(entries)] = entries.tobytes()
    newest = order[np.append(~repeats, True)]
    slots[places[newest]] = numbers[newest]
    file.slot_count += int(np.count_nonzero(previous == 0))
    file.count = count + stop - start
    file.end_put(int(offsets[stop - 1]), int(times[stop - 1]))
    return stop
