"""A repeat places rows as the first try did, whatever it sees of the cluster; what can't be honoured is refused."""

from typing import Any

import pytest

from tandemq.errors import NoRoute
from tandemq.model.topic import QueueRef
from tandemq.spark.sink.ledger import CannotBeExact, Entry, Placement, WriteLedger


class Cluster:
    """Broker groups with a topic each; groups in `away` can't be asked."""

    def __init__(self, **queues: int) -> None:
        self.queues = queues
        self.away: set[str] = set()
        self._entries: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def up(self) -> list[str]:
        return sorted(set(self.queues) - self.away)

    def __call__(self, group: str, name: str, batch: int, document: dict[str, Any]) -> Entry:
        if group in self.away:
            raise NoRoute(f"broker group {group!r} has no master")
        known = self._entries.get((group, name))
        if known is None or known.get("batch", 0) < batch:
            self._entries[group, name] = document
            return Entry(document, 0)
        return Entry(known, 99)

    def place(self, sink: str = "s", batch: int = 0) -> Placement:
        visible = tuple(QueueRef("t", group, n) for group in self.up for n in range(self.queues[group]))
        return WriteLedger(sink, lambda: self.up, self).placement("t", batch, visible)


def counts(placement: Placement) -> dict[str, int]:
    found: dict[str, int] = {}
    for queue in placement.queues:
        found[queue.broker_name] = found.get(queue.broker_name, 0) + 1
    return found


def test_the_first_try_gets_what_it_sees() -> None:
    cluster = Cluster(a=4, b=2)
    placement = cluster.place()
    assert counts(placement) == {"a": 4, "b": 2}
    assert placement.since_ms == 0


def test_more_queues_are_used_by_the_next_micro_batch_only() -> None:
    cluster = Cluster(a=4)
    first = cluster.place(batch=3)
    cluster.queues["a"] = 8
    assert cluster.place(batch=3) == first._replace(since_ms=99)
    assert counts(cluster.place(batch=4)) == {"a": 8}


def test_a_new_group_is_used_by_the_next_micro_batch_only() -> None:
    cluster = Cluster(b=4)
    cluster.place(batch=0)
    cluster.queues["a"] = 4
    assert counts(cluster.place(batch=0)) == {"b": 4}
    assert counts(cluster.place(batch=1)) == {"a": 4, "b": 4}


@pytest.mark.parametrize("away", ["a", "b"])
def test_a_group_that_is_away_is_waited_for_or_named(away: str) -> None:
    """Any group that is left knows of the others; a write that begins now does without the missing one."""
    cluster = Cluster(a=4, b=4)
    cluster.place()
    cluster.away = {away}
    with pytest.raises(NoRoute, match=f"broker group '{away}' has no master"):
        cluster.place()
    assert away not in counts(cluster.place(sink="other"))
    cluster.away = set()
    assert counts(cluster.place()) == {"a": 4, "b": 4}


def test_a_group_without_the_topic_still_remembers() -> None:
    """The topic's only group is away: the others know that, although they have none of its queues."""
    cluster = Cluster(a=4, b=0)
    cluster.place()
    cluster.away, cluster.queues["b"] = {"a"}, 4
    with pytest.raises(NoRoute, match="broker group 'a' has no master"):
        cluster.place()


def test_of_two_tries_that_saw_different_clusters_one_counts() -> None:
    """The first died before its entry was on all groups; the second completed its own, and that stays."""
    cluster = Cluster(a=4, b=4)
    proposal = {"kind": "placement", "sink": "s", "topic": "t", "batch": 0, "queues": {"a": 4, "b": 4}}
    cluster("a", "placement/s/t", 0, {**proposal, "held_by": ["a", "b"]})
    cluster.away = {"a"}
    assert counts(cluster.place()) == {"b": 4}
    cluster.away = set()
    assert counts(cluster.place()) == {"b": 4}


def test_entries_that_were_never_completed_are_harmless() -> None:
    """Whatever the order in which groups were away."""
    cluster = Cluster(a=4, b=4, c=4)
    proposal = {"kind": "placement", "sink": "s", "topic": "t", "batch": 0, "queues": {"b": 4, "c": 4}}
    cluster("b", "placement/s/t", 0, {**proposal, "held_by": ["b", "c"]})
    assert counts(cluster.place()) == {"b": 4, "c": 4}
    assert counts(cluster.place()) == {"b": 4, "c": 4}


def test_a_try_that_died_while_it_agreed_is_completed() -> None:
    cluster = Cluster(a=4, b=4)
    proposal = {"kind": "placement", "sink": "s", "topic": "t", "batch": 0, "queues": {"a": 4, "b": 4}}
    cluster("a", "placement/s/t", 0, {**proposal, "held_by": ["a", "b"]})
    cluster.queues["a"] = 8
    assert counts(cluster.place()) == {"a": 4, "b": 4}


def test_an_older_micro_batch_than_the_last_is_refused() -> None:
    """Its placement is no longer known, and its checkpoint is not the newest."""
    cluster = Cluster(a=4)
    cluster.place(batch=57)
    with pytest.raises(CannotBeExact, match="has begun micro-batch 57, but this query is at 40"):
        cluster.place(batch=40)


def test_a_completed_write_can_only_be_repeated_with_the_same_rows() -> None:
    cluster = Cluster(a=4)
    ledger = WriteLedger("s", lambda: cluster.up, cluster)
    ledger.complete([10, 9])
    ledger.complete([10, 9])
    with pytest.raises(CannotBeExact, match=r"2 partitions of \[10, 9\] rows, this time with 1 of \[19\]"):
        ledger.complete([19])
    check = WriteLedger.check_rows
    check("s", [10, 9], 1, 9, is_all=True)
    check("s", [10, 9], 1, 5, is_all=False)
    check("s", [10, 9], 2, 0, is_all=True)
    for partition, rows, is_all in ((1, 10, False), (1, 8, True), (2, 1, False)):
        with pytest.raises(CannotBeExact, match="2 partitions"):
            check("s", [10, 9], partition, rows, is_all=is_all)
