"""The first decision wins, whatever broker groups a try saw. With a live broker: tests/spark/test_spark_live_broker."""

from typing import Any

import pytest

from tandemq.errors import NoRoute
from tandemq.model.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tandemq.model.topic import QueueRef
from tandemq.spark.options import SinkOptions, parse
from tandemq.spark.sink.transactions import Coordinator, Half, half_of, half_properties

OPTIONS = parse(SinkOptions, {"nameserver": "n:1", "topic": "t", "transactionTimeoutSeconds": "90"})


def half(broker: str, number: int) -> Half:
    return Half(broker, "t", number, number * 100, f"key{number}")


class FakeCoordinator(Coordinator):
    """Decisions by broker group, in memory; groups in `away` are not seen."""

    def __init__(self) -> None:
        super().__init__(OPTIONS, "s")
        self.groups: dict[str, list[Half]] = {}
        self.ended: list[tuple[Half, int]] = []
        self.known = {"a", "b"}
        self.delivered: set[Half] = set()

    def _members(self) -> dict[str, list[str]]:
        return {group: [group] for group in sorted(self.known)}

    def _decision_on(self, members: list[str], name: str) -> list[Half] | None:
        return self.groups.get(members[0])

    def _decide(self, batch: int, halves: list[Half], groups: set[str]) -> None:
        self.groups.update(dict.fromkeys(groups, halves))

    def _end(self, halves: list[Half], decision: int) -> None:
        self.ended += ((one, decision) for one in halves)

    def _is_delivered(self, one: Half) -> bool:
        return one in self.delivered


FIRST, SECOND = [half("a", 1), half("b", 2)], [half("a", 3), half("b", 4)]


def test_the_first_decision_is_on_every_group_with_a_half_and_then_acted_on() -> None:
    one = FakeCoordinator()
    one.commit(0, FIRST)
    assert one.groups == {"a": FIRST, "b": FIRST}
    assert one.ended == [(each, TRANSACTION_COMMIT) for each in FIRST]


def test_a_later_try_commits_what_was_decided_and_rolls_its_own_back() -> None:
    one = FakeCoordinator()
    one.groups = {"a": FIRST, "b": FIRST}
    one.delivered = {FIRST[0]}
    one.commit(0, SECOND)
    assert one.ended == [(FIRST[1], TRANSACTION_COMMIT), *((each, TRANSACTION_ROLLBACK) for each in SECOND)]


def test_a_decision_that_is_not_on_all_its_groups_is_completed_first() -> None:
    one = FakeCoordinator()
    one.groups = {"a": FIRST}
    one.commit(0, SECOND)
    assert one.groups == {"a": FIRST, "b": FIRST}


def test_of_two_decisions_the_complete_one_counts() -> None:
    """A try that saw both groups died before it decided on the second; the next saw only that one and completed."""
    one = FakeCoordinator()
    alone = [half("b", 9)]
    one.groups = {"a": FIRST, "b": alone}
    one.commit(0, SECOND)
    assert (alone[0], TRANSACTION_COMMIT) in one.ended
    assert (FIRST[0], TRANSACTION_COMMIT) not in one.ended


def test_an_abort_keeps_what_is_decided() -> None:
    one = FakeCoordinator()
    one.abort(0, FIRST)
    assert one.ended == [(each, TRANSACTION_ROLLBACK) for each in FIRST]
    one.ended.clear()
    one.groups = {"a": FIRST}
    one.abort(0, FIRST)
    assert one.ended == []


def test_nothing_is_decided_without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Coordinator(OPTIONS, "s")
    monkeypatch.setattr(one._routes, "members", dict)
    with pytest.raises(NoRoute, match="can't be told whether this micro-batch was decided before"):
        one._members()


def test_a_half_knows_its_place() -> None:
    made: Any = half_of(QueueRef("t", "a", 2), "key", 5, "7F00000100002A9F0000000000000010")
    assert made == Half("a", "t", 5, 16, "key")
    assert "CHECK_IMMUNITY_TIME_IN_SECONDS\x0190" in half_properties(OPTIONS)
