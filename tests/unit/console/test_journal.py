"""The journal of acts is bounded and newest first."""

from tandemq.console.journal import ACTS_MAX, Journal


def test_the_oldest_act_makes_room() -> None:
    journal = Journal()
    for number in range(ACTS_MAX + 1):
        journal.open(number, "ops", "127.0.0.1", "create topic", f"t{number}")
    assert len(journal.newest()) == ACTS_MAX
    assert journal.newest()[0].target == f"t{ACTS_MAX}"
    assert journal.find(1) is None
    assert journal.find(2) is not None
