"""Pure planning: from options, queue ranges and stored offsets to what is read. No Spark, no network, no files.

A stream offset is a plain dict:

    {"v": 1, "q": {"broker/topic/0": next_offset, ...}, "initial": true?, "from": {"broker/topic/0": start, ...}?,
     "m": {"broker/topic/0": [offset, physical_offset, store_ms], ...}?}

`q` holds the next offset of every queue. Spark asks for the initial offset twice and again when batch 0 is replayed,
and stores it nowhere, so a moving "latest" would lose messages: the end offset of a batch therefore carries, in `from`,
where each queue begins that the start offset does not settle (all of them for an initial offset; new queues later, and
queues that were made anew).

`m` holds a *mark* per queue: a message that was read, by its place in the log and the time it was stored. If another
message is found at its offset, the topic was deleted and made anew, and the offsets of the checkpoint mean nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from tandemq.errors import ConfigError, TandemError
from tandemq.model.topic import QueueRef
from tandemq.spark.options import EARLIEST, LATEST, SelectOptions, WithoutMessages, offsets_of
from tandemq.spark.options.texts import EARLIEST_NUMBER, LATEST_NUMBER, ByQueue, times_of

VERSION = 1

Offsets = dict[QueueRef, int]


class Range(NamedTuple):
    """What a queue holds: offsets [first, next)."""

    first: int
    next: int


Ranges = Mapping[QueueRef, Range]


class Mark(NamedTuple):
    """A message that was read."""

    offset: int
    physical_offset: int
    store_ms: int


Marks = dict[QueueRef, Mark]


class Slice(NamedTuple):
    """A piece of one queue: offsets [start, stop)."""

    queue: QueueRef
    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


class DataLost(TandemError):
    """Messages were deleted before they were read."""


def key_of(queue: QueueRef) -> str:
    return f"{queue.broker_name}/{queue.topic}/{queue.queue_id}"


def queue_of(key: str) -> QueueRef:
    broker, topic, queue_id = key.rsplit("/", 2)
    return QueueRef(topic, broker, int(queue_id))


def to_json(offsets: Mapping[QueueRef, int], **extra: Any) -> dict[str, Any]:
    return {"v": VERSION, "q": {key_of(queue): offset for queue, offset in sorted(offsets.items())}, **extra}


def from_json(stored: Mapping[str, Any], member: str = "q") -> Offsets:
    if stored.get("v") != VERSION:
        raise ConfigError(
            f"the checkpoint's offset has version {stored.get('v')!r}, this release reads {VERSION}: {dict(stored)!r}"
        )
    return {queue_of(key): int(offset) for key, offset in stored.get(member, {}).items()}


def marks_to_json(marks: Mapping[QueueRef, Mark]) -> dict[str, list[int]]:
    return {key_of(queue): list(mark) for queue, mark in sorted(marks.items())}


def marks_from_json(stored: Mapping[str, Any]) -> Marks:
    return {queue_of(key): Mark(*map(int, mark)) for key, mark in stored.get("m", {}).items()}


# partition numbers


class Numbering:
    """The number by which options and the column `partition` name a queue.

    A queue's own number; with `schema=kafka`, the queues of a topic on several broker groups are numbered on in the
    order of the groups' names.
    """

    def __init__(self, bases: Mapping[str, Mapping[str, int]] | None = None) -> None:
        """`bases`: broker -> topic -> number of the topic's first queue there."""
        self._bases = bases or {}

    @classmethod
    def of(cls, counts: Mapping[tuple[str, str], int]) -> "Numbering":
        """Builds the offsets from (topic, broker) -> how many queues the topic has there."""
        bases: dict[str, dict[str, int]] = {}
        following: dict[str, int] = {}
        for (topic, broker), count in sorted(counts.items()):
            base = following.get(topic, 0)
            following[topic] = base + count
            if base:
                bases.setdefault(broker, {})[topic] = base
        return cls(bases)

    def number(self, queue: QueueRef) -> int:
        return queue.queue_id + self._bases.get(queue.broker_name, {}).get(queue.topic, 0)

    def bases_of(self, broker: str) -> Mapping[str, int]:
        """Returns topic -> number of its first queue on this broker, where that is not 0."""
        return self._bases.get(broker, {})


PLAIN = Numbering()


# where to begin and end

AtTime = Callable[[Mapping[QueueRef, int]], Mapping[QueueRef, int]]
"""queue -> time (ms) to queue -> offset of the first message stored at or after it."""


def starting(
    options: SelectOptions, ranges: Ranges, at_time: AtTime, default: str, numbering: Numbering = PLAIN
) -> Offsets:
    """Returns the first offsets to read, by startingOffsets, startingTimestamp or startingOffsetsByTimestamp."""
    times = _starting_times(options, ranges, numbering)
    if times is None:
        return _specific(options.starting_offsets or default, "startingOffsets", ranges, EARLIEST, numbering)
    found = at_time(times)
    strict = options.starting_offsets_by_timestamp_strategy is WithoutMessages.ERROR
    for queue, time in times.items():
        if strict and found[queue] >= ranges[queue].next:
            raise ConfigError(
                f"{key_of(queue)} has no message stored at or after {time}; see startingOffsetsByTimestampStrategy"
            )
    return {queue: found.get(queue, bounds.first) for queue, bounds in ranges.items()}


def _starting_times(options: SelectOptions, ranges: Ranges, numbering: Numbering) -> dict[QueueRef, int] | None:
    if options.starting_offsets_by_timestamp:
        name = "startingOffsetsByTimestamp"
        return dict(_by_queue(times_of(options.starting_offsets_by_timestamp, name), name, ranges, numbering))
    if options.starting_timestamp >= 0:
        return dict.fromkeys(ranges, options.starting_timestamp)
    return None


def ending(options: SelectOptions, ranges: Ranges, at_time: AtTime, numbering: Numbering = PLAIN) -> Offsets:
    """Returns the offsets where a batch read stops."""
    if options.ending_timestamp >= 0:
        return dict(at_time(dict.fromkeys(ranges, options.ending_timestamp)))
    if options.ending_offsets_by_timestamp:
        name = "endingOffsetsByTimestamp"
        times = dict(_by_queue(times_of(options.ending_offsets_by_timestamp, name), name, ranges, numbering))
        found = at_time(times)
        return {queue: found.get(queue, bounds.next) for queue, bounds in ranges.items()}
    return _specific(options.ending_offsets or LATEST, "endingOffsets", ranges, LATEST, numbering)


def check_order(options: SelectOptions, starts: Offsets, stops: Offsets) -> Offsets:
    """Returns the stops; ConfigError if a queue is to be read from beyond where it is to end.

    Times that were stored out of order are no mistake of the user: then nothing is read.
    """
    for queue, start in starts.items():
        if start > stops[queue] and options.ending_offsets:
            raise ConfigError(
                f"endingOffsets={options.ending_offsets}: {key_of(queue)} would end at {stops[queue]} but begin at "
                f"{start}; the start must not be after the end"
            )
    return {queue: max(stop, starts[queue]) for queue, stop in stops.items()}


def _specific(text: str, name: str, ranges: Ranges, unnamed: str, numbering: Numbering) -> Offsets:
    """Returns offsets from earliest, latest or JSON; queues that the JSON does not name get `unnamed`."""
    given = offsets_of(text, name)
    if isinstance(given, str):
        return {queue: _resolved(given, bounds) for queue, bounds in ranges.items()}
    offsets = {queue: _resolved(unnamed, bounds) for queue, bounds in ranges.items()}
    for queue, offset in _by_queue(given, name, ranges, numbering):
        bounds = ranges[queue]
        if offset == EARLIEST_NUMBER and unnamed == LATEST:
            raise ConfigError(f"{name}: {key_of(queue)}: -2 (earliest) as the end would read nothing")
        if offset > bounds.next:
            raise ConfigError(
                f"{name}: {key_of(queue)}: offset {offset} is beyond the end of the queue; it has {bounds.first} to "
                f"{bounds.next}"
            )
        word = {EARLIEST_NUMBER: EARLIEST, LATEST_NUMBER: LATEST}.get(offset)
        offsets[queue] = offset if word is None else _resolved(word, bounds)
    return offsets


def _resolved(word: str, bounds: Range) -> int:
    return bounds.first if word == EARLIEST else bounds.next


def _by_queue(given: ByQueue, name: str, ranges: Ranges, numbering: Numbering) -> Iterable[tuple[QueueRef, int]]:
    """Matches JSON by topic or broker/topic to queues; a name that matches none is an error."""
    by_name: dict[tuple[str, int], list[QueueRef]] = {}
    for queue in ranges:
        by_name.setdefault((queue.topic, numbering.number(queue)), []).append(queue)
        by_name.setdefault((f"{queue.broker_name}/{queue.topic}", queue.queue_id), []).append(queue)
    for topic, by_id in given.items():
        for number, value in by_id.items():
            hits = by_name.get((topic, number), [])
            if not hits:
                known = ", ".join(sorted(key_of(queue) for queue in ranges)[:12])
                raise ConfigError(f"{name}: there is no queue {number} of {topic!r}; there are {known or 'none'}")
            yield from ((queue, value) for queue in hits)


# what is gone


def checked_starts(
    starts: Offsets, ranges: Ranges, fail: bool, anew: Mapping[QueueRef, Mark | None] | None = None
) -> tuple[Offsets, list[str]]:
    """Returns starts that still exist, and a sentence per queue whose messages are gone; DataLost if that may not be.

    `anew`: queues that no longer hold what was read of them; with a mark that is still right, only the end was lost.
    """
    result, lost = dict[QueueRef, int](), list[str]()
    for queue, start in starts.items():
        bounds = ranges.get(queue)
        if bounds is None:
            result[queue] = start
        elif anew is not None and queue in anew:
            mark = anew[queue]
            result[queue] = bounds.first if mark is None else min(start, bounds.next)
            lost.append(_anew_text(queue, start, bounds, mark))
        elif start < bounds.first:
            lost.append(f"{key_of(queue)}: offsets {start} to {bounds.first - 1} were deleted before they were read")
            result[queue] = bounds.first
        else:
            result[queue] = start
    if lost and fail:
        raise DataLost("; ".join(lost) + " (failOnDataLoss=false reads on from the first message left)")
    return result, lost


def _anew_text(queue: QueueRef, start: int, bounds: Range, mark: Mark | None) -> str:
    if mark is not None:
        return (
            f"{key_of(queue)} was read up to {start} and now ends at {bounds.next}: messages that were read are no "
            "longer there (a failover lost them)"
        )
    return (
        f"{key_of(queue)} was deleted and made anew: it was read up to {start}, but now holds other messages, "
        f"{bounds.first} to {bounds.next}"
    )


def slices_of(starts: Offsets, stops: Offsets) -> list[Slice]:
    """Returns what lies between two offsets, queue by queue."""
    return [
        Slice(queue, starts.get(queue, stop), stop)
        for queue, stop in sorted(stops.items())
        if starts.get(queue, stop) < stop
    ]


# how much in one micro-batch


def limited(starts: Offsets, stops: Offsets, count_max: int) -> Offsets:
    """Stops lowered so that at most `count_max` messages are read, shared in proportion to what each queue has.

    Every queue with something to read gets at least one message as long as the limit allows, so none starves.
    """
    waiting = {queue: stop - starts[queue] for queue, stop in stops.items() if stop > starts[queue]}
    total = sum(waiting.values())
    if total <= count_max:
        return dict(stops)
    shares = {queue: waiting[queue] * count_max // total for queue in sorted(waiting)}
    left = count_max - sum(shares.values())
    # Largest remainder first; queues that got nothing come before all others.
    order = sorted(shares, key=lambda q: (shares[q] > 0, -(waiting[q] * count_max % total), q))
    for queue in order[:left]:
        shares[queue] += 1
    return {queue: starts[queue] + shares[queue] if queue in shares else stop for queue, stop in stops.items()}


def limited_bytes(starts: Offsets, stops: Offsets, size_max: int, size_of: Mapping[QueueRef, float]) -> Offsets:
    """Stops lowered to about `size_max` bytes, given the mean record size of each queue; at least one message."""
    total = sum((stop - starts[queue]) * size_of.get(queue, 0.0) for queue, stop in stops.items())
    if total <= size_max:
        return dict(stops)
    count = sum(stop - starts[queue] for queue, stop in stops.items())
    return limited(starts, stops, max(1, int(count * size_max / total)))


# tasks


def tasks_of(slices: list[Slice], *, tasks_min: int = 0, count_max: int = 0, count_min: int = 0) -> list[list[Slice]]:
    """Slices grouped into tasks: large ones are split, small ones share.

    `count_max`: no task reads more; `tasks_min`: at least so many tasks if there are enough messages; `count_min`: a
    task takes further slices until it has so many messages (never beyond count_max, never below tasks_min tasks).
    """
    total = sum(piece.length for piece in slices)
    if not total:
        return []
    size_max = count_max or total
    if tasks_min:
        size_max = min(size_max, max(1, -(-total // tasks_min)))
    pieces = [part for piece in slices for part in _parts(piece, size_max)]
    together = min(count_min, size_max) if count_min else 0
    tasks: list[list[Slice]] = []
    size = 0
    for piece in pieces:
        if tasks and size + piece.length <= together:
            tasks[-1].append(piece)
            size += piece.length
        else:
            tasks.append([piece])
            size = piece.length
    return tasks


def _parts(piece: Slice, count_max: int) -> list[Slice]:
    parts = -(-piece.length // count_max)
    edges = [piece.start + piece.length * i // parts for i in range(parts + 1)]
    return [Slice(piece.queue, a, b) for a, b in pairwise(edges)]
