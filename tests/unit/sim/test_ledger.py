"""What the ledger of the simulator forgives, and what it does not."""

import pytest

from tandemq.sim.ledger import Entry, Ledger, Violation


class Node:
    """Holds texts at offsets."""

    def __init__(self, name: str, **log: bytes) -> None:
        self.name = name
        self.log = {int(at.removeprefix("at")): data for at, data in log.items()}

    def holds(self, start: int, data: bytes, *, durable: bool = False) -> bool:
        return self.log.get(start) == data


def promised(copies: int = 2) -> Entry:
    return Entry("message", 0, b"x", copies, False, "n0")


def group() -> tuple[Ledger, list[Node]]:
    nodes = [Node("n0", at0=b"x"), Node("n1", at0=b"x"), Node("n2")]
    return Ledger(list(nodes)), nodes


def test_a_promise_without_its_copies_is_a_lie() -> None:
    ledger, _ = group()
    with pytest.raises(Violation, match="only"):
        ledger.promise(promised(copies=3), excused=0)


def test_a_copy_on_a_machine_that_stopped_a_moment_ago_is_believed() -> None:
    ledger, _ = group()
    ledger.promise(promised(copies=3), excused=1)
    assert ledger.made == 1


def test_nobody_opens_without_what_another_still_has() -> None:
    ledger, nodes = group()
    ledger.promise(promised(), excused=0)
    with pytest.raises(Violation, match="opened for writes without it"):
        ledger.opened(nodes[2], [])


def test_whoever_could_not_be_heard_does_not_count() -> None:
    ledger, nodes = group()
    ledger.promise(promised(), excused=0)
    ledger.opened(nodes[2], [nodes[0], nodes[1]])
    assert ledger.entries == []


def test_as_many_faults_as_copies_make_a_promise_void() -> None:
    ledger, nodes = group()
    entry = promised()
    ledger.promise(entry, excused=0)
    for node in nodes[:2]:
        held = ledger.held_by(node)
        node.log.clear()
        ledger.lost(node, held)
    assert entry.is_void
    ledger.settled(nodes[2])


def test_a_fault_that_the_level_survives_takes_nothing() -> None:
    ledger, nodes = group()
    entry = promised()
    ledger.promise(entry, excused=0)
    nodes[1].log.clear()
    with pytest.raises(Violation, match="must survive"):
        ledger.survived(nodes[1], [entry], "kill")


def test_a_copy_of_one_is_about_its_master_alone() -> None:
    ledger, nodes = group()
    ledger.promise(promised(copies=1), excused=0)
    ledger.opened(nodes[2], [])
    assert ledger.entries == []
