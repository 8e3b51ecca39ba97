"""What a query asks for narrows a read and never drops a message that it asks for."""

import json
from typing import Any

import pytest

from tandemq.model.topic import QueueRef
from tandemq.spark.options import FileOptions, PullOptions, parse
from tandemq.spark.source.asked import EVERYTHING, Asked, asked_of, taken_from
from tandemq.spark.source.decoder import Wanted
from tandemq.spark.source.offsets import Slice


def pull(**options: str) -> PullOptions:
    return parse(PullOptions, {"nameserver": "n:1", **options})


def test_the_planners_option_is_taken_out_whatever_its_case() -> None:
    given = {"TandemQ.Planned": json.dumps([["topic", "in", ["a"]]]), "path": "/p"}
    assert taken_from(given) == ({"path": "/p"}, Asked(topics=frozenset("a")))
    assert taken_from({"path": "/p"}) == ({"path": "/p"}, EVERYTHING)


def test_conditions_on_one_column_are_all_kept() -> None:
    asked = asked_of([["topic", "in", ["a", "b"]], ["topic", "in", ["b", "c"]], ["flag", "in", [3]]])
    assert asked == Asked(topics=frozenset("b"))
    asked = asked_of([["queue_offset", "ge", [10]], ["queue_offset", "gt", [20]], ["queue_offset", "lt", [50]]])
    assert (asked.first_offset, asked.stop_offset) == (20, 51)


@pytest.mark.parametrize(
    ("operator", "low", "high"), [("gt", 1, None), ("ge", 1, None), ("lt", None, 2), ("le", None, 2), ("in", 1, 2)]
)
def test_microseconds_become_milliseconds_that_hold_them(operator: str, low: int | None, high: int | None) -> None:
    """A message of the millisecond 1 is compared by Spark itself: here it must not be lost by rounding."""
    asked = asked_of([["store_timestamp", operator, [1500]]])
    assert (asked.stored_from_ms, asked.stored_before_ms) == (low, high)


def test_slices_are_cut_to_what_is_asked_for() -> None:
    a, b = QueueRef("t", "a", 0), QueueRef("t", "b", 1)
    planned = [Slice(a, 0, 100), Slice(b, 0, 100)]
    assert EVERYTHING.slices(planned) == planned
    assert Asked(brokers=frozenset("a")).slices(planned) == planned[:1]
    assert Asked(queue_ids=frozenset([1]), first_offset=90).slices(planned) == [Slice(b, 90, 100)]
    assert Asked(stop_offset=0).slices(planned) == []
    assert Asked(topics=frozenset()).slices(planned) == []


def test_brokers_compare_tags_unless_a_queue_has_something_else_in_their_place() -> None:
    asked = Asked(tags=frozenset({"red", "blue"}))
    assert asked.narrowed(pull(subscribe="t")).wanted_tags == {"red", "blue"}
    unsafe: list[dict[str, str]] = [
        {"subscribe": "SCHEDULE_TOPIC_XXXX"}, {"subscribePattern": ".*"}, {"subscribe": "t", "tags": "green"},
        {"subscribe": "t", "sql": "a > 1"},
    ]  # fmt: skip
    for options in unsafe:
        assert asked.narrowed(pull(**options)) == pull(**options)
    assert Asked(tags=frozenset({"a||b"})).narrowed(pull(subscribe="t")).wanted_tags == set()
    files = parse(FileOptions, {"path": "/p"})
    assert asked.narrowed(files) == files


def test_a_pattern_is_narrowed_to_the_topics_that_are_asked_for() -> None:
    asked = Asked(topics=frozenset({"a.1", "b1"}))
    narrowed = asked.narrowed(pull(subscribePattern="a.*"))
    assert narrowed.selects("a.1", system=False)
    assert not narrowed.selects("ax1", system=False)
    assert not narrowed.selects("b1", system=False)
    nothing = Asked(topics=frozenset({"b"})).narrowed(pull(subscribePattern="a.*"))
    assert not any(nothing.selects(topic, system=False) for topic in ("a", "b", ""))
    named = pull(subscribePattern="a.*", startingOffsets='{"a": {"0": 5}}')
    assert asked.narrowed(named) == named, "queues that options name must exist among those that are looked at"


@pytest.mark.parametrize(
    ("asked", "given", "wanted"),
    [
        (Asked(topics=frozenset("ab")), Wanted(topics=frozenset("bc")), {"topics": frozenset("b")}),
        (Asked(topics=frozenset("a")), Wanted(topics=frozenset("b")), {"topics": frozenset("b")}),
        (Asked(topics=frozenset("ab")), Wanted(excluded_topic=lambda topic: topic == "a"), {"topics": frozenset("b")}),
        (Asked(tags=frozenset("a")), Wanted(), {"tags": frozenset("a")}),
        (Asked(tags=frozenset("a")), Wanted(tags=frozenset("b")), {"tags": frozenset("b")}),
        (Asked(keys=frozenset(["k1 k2", "k3"])), Wanted(), {"keys": frozenset(["k1", "k3"])}),
        (Asked(keys=frozenset([" ", "k3"])), Wanted(), {"keys": frozenset()}),
        (Asked(stored_from_ms=5), Wanted(stored_from_ms=7), {"stored_from_ms": 7}),
        (Asked(stored_before_ms=5), Wanted(stored_before_ms=7), {"stored_before_ms": 5}),
    ],
)
def test_the_decoder_leaves_out_what_spark_would(asked: Asked, given: Wanted, wanted: dict[str, Any]) -> None:
    found = asked.wanted(given)
    assert {name: getattr(found, name) for name in wanted} == wanted
