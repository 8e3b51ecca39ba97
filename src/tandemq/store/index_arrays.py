"""Many keys into an index file at once; the outcome is that of putting them one by one."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tandemq.store.key_index import ENTRY, HEADER, SECONDS_MAX, IndexFile

Array: TypeAlias = npt.NDArray[Any]
_ENTRY = np.dtype([("hash", ">u4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">u4")])


def put_some(file: IndexFile, hashes: Array, offsets: Array, times: Array, start: int) -> int:
    """As IndexFile.put_some, of arrays: until all are in or the file is full."""
    if file.count <= 1:
        file.put_first(int(hashes[start]), int(offsets[start]), int(times[start]))
        return start + 1
    stop, count = file.make_room(start, len(hashes)), file.count
    numbers = np.arange(count, count + stop - start)
    places = hashes[start:stop].astype(np.int64) % file.slots
    slots = np.frombuffer(file.view, dtype=">u4", count=file.slots, offset=HEADER.size)
    previous = slots[places].astype(np.int64)
    previous[previous >= count] = 0  # damage, or another program's leftovers
    order = np.argsort(places, kind="stable")
    repeats = np.diff(places[order]) == 0
    previous[order[1:][repeats]] = numbers[order[:-1][repeats]]

    entries = np.empty(stop - start, dtype=_ENTRY)
    entries["hash"], entries["offset"] = hashes[start:stop], offsets[start:stop]
    entries["seconds"] = np.clip((times[start:stop] - file.begin_timestamp) // 1000, 0, SECONDS_MAX)
    entries["previous"] = previous
    at = file.entry_at(count)
    file.view[at : at + ENTRY.size * len(entries)] = entries.tobytes()
    newest = order[np.append(~repeats, True)]
    slots[places[newest]] = numbers[newest]
    file.slot_count += int(np.count_nonzero(previous == 0))
    file.count = count + stop - start
    file.end_put(int(offsets[stop - 1]), int(times[stop - 1]))
    return stop
