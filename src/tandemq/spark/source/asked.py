"""What a query asks for besides its options: the conditions that `planning` found in it.

Spark evaluates every condition again, so all that is done here may keep too many messages, never too few. That is also
why times choose no place in a queue: a clock that was set back leaves messages out of order, and a search by time would
miss some of them. Each message's own time is compared.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tandemq.spark.options import FileOptions, PullOptions, SelectOptions
from tandemq.spark.source.offsets import Slice
from tandemq.spark.source.system_topics import is_system_topic

if TYPE_CHECKING:
    from tandemq.spark.source.decoder import Wanted

PLANNED = "tandemq.planned"
"""The option in which a planned scan carries its conditions; users do not give it."""

Options = TypeVar("Options", PullOptions, FileOptions)

_WORD = re.compile(r"[^\s,|*]+")
"""A tag that the option can name: it separates several by commas or `||`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Conditions that all must hold; None asks for nothing."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    first_offset: int | None = None
    stop_offset: int | None = None
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None

    def narrowed(self, options: Options) -> Options:
        """Returns the options of a reader that need not look for more than this."""
        changes: dict[str, Any] = {}
        if self._broker_may_filter(options):
            changes["tags"] = "||".join(sorted(self.tags or ()))
        if self.topics and options.subscribe_pattern and not _names_queues(options):
            matching = [topic for topic in self.topics if options.selects(topic, system=False)]
            changes["subscribe_pattern"] = "|".join(map(re.escape, sorted(matching))) or "(?!)"
        return dataclasses.replace(options, **changes) if changes else options

    def _broker_may_filter(self, options: SelectOptions) -> bool:
        """Returns whether tags can be compared in the queue already, by their hash.

        Queues of system topics have something else in its place: that of a delayed message is when it is due.
        """
        if not self.tags or not all(map(_WORD.fullmatch, self.tags)) or options.wanted_tags:
            return False
        if isinstance(options, PullOptions) and options.sql:
            return False
        return bool(options.topics) and not any(map(is_system_topic, options.topics))

    def slices(self, planned: Iterable[Slice]) -> list[Slice]:
        """Returns the parts of these slices that can hold what is asked for."""
        found = []
        for piece in planned:
            queue = piece.queue
            if (
                _allows(self.topics, queue.topic)
                and _allows(self.brokers, queue.broker_name)
                and _allows(self.queue_ids, queue.queue_id)
            ):
                start = piece.start if self.first_offset is None else max(piece.start, self.first_offset)
                stop = piece.stop if self.stop_offset is None else min(piece.stop, self.stop_offset)
                if start < stop:
                    found.append(Slice(queue, start, stop))
        return found

    def wanted(self, wanted: "Wanted") -> "Wanted":
        """Returns the filter of a decoder with these topics and times in it."""
        topics = wanted.topics
        if self.topics:
            excluded = wanted.excluded_topic
            both = self.topics & topics if topics else {t for t in self.topics if excluded is None or not excluded(t)}
            topics = frozenset(both) or topics
        # The column holds all keys of a message: one that equals a text has the first key in it.
        firsts = [key.split()[:1] for key in self.keys or ()]
        keys = frozenset(key for words in firsts for key in words) if all(firsts) else frozenset()
        return dataclasses.replace(
            wanted,
            topics=topics,
            tags=wanted.tags or self.tags or frozenset(),
            keys=wanted.keys or keys,
            stored_from_ms=_tighter(max, wanted.stored_from_ms, self.stored_from_ms),
            stored_before_ms=_tighter(min, wanted.stored_before_ms, self.stored_before_ms),
        )


EVERYTHING = Asked()


def taken_from(given: Mapping[str, str]) -> tuple[dict[str, str], Asked]:
    """Returns a reader's options without the planner's, and what that one asked for."""
    text = next((value for key, value in given.items() if key.lower() == PLANNED), None)
    plain = {key: value for key, value in given.items() if key.lower() != PLANNED}
    return plain, EVERYTHING if text is None else asked_of(json.loads(text))


def asked_of(conditions: list[list[Any]]) -> Asked:
    """Builds the conditions from [[column, operator, values], ...]: `in` for equality, and lt, le, gt, ge."""
    found: dict[str, Any] = {}
    for column, operator, values in conditions:
        if operator == "in" and column in _SETS:
            name = _SETS[column]
            chosen = frozenset(values)
            found[name] = chosen & found[name] if name in found else chosen
        elif column in ("queue_offset", "offset"):
            _bound(found, "first_offset", "stop_offset", operator, values, 1)
        elif column in ("store_timestamp", "timestamp"):
            _bound(found, "stored_from_ms", "stored_before_ms", operator, values, 1000)
    return Asked(**found)


_SETS = {"topic": "topics", "broker": "brokers", "tags": "tags", "keys": "keys", "queue_id": "queue_ids"}


def _bound(found: dict[str, Any], low: str, high: str, operator: str, values: list[int], unit: int) -> None:
    """Notes a range of numbers; `unit` is what one step of ours is in the query's numbers."""
    if not values:
        return
    if operator in ("in", "gt", "ge"):
        found[low] = max(found.get(low, 0), min(values) // unit)
    if operator in ("in", "lt", "le"):
        stop = max(values) // unit + 1
        found[high] = min(found.get(high, stop), stop)


def _allows(chosen: frozenset[Any] | None, value: Any) -> bool:
    return chosen is None or value in chosen


def _tighter(choose: Any, given: int | None, asked: int | None) -> int | None:
    if given is None or asked is None:
        return asked if given is None else given
    tighter: int = choose(given, asked)
    return tighter


def _names_queues(options: Options) -> bool:
    """Returns whether options name queues, which must then exist among those that are examined."""
    return any(
        "{" in text
        for text in (
            options.starting_offsets,
            options.ending_offsets,
            options.starting_offsets_by_timestamp,
            options.ending_offsets_by_timestamp,
            options.assign,
        )
    )
