"""The judge of the failover chaos: what is lost, who acknowledged beside another."""

from bench.failover_chaos import Told, judge

EPOCHS = [(1, 0), (3, 1000)]
"""The second reign began at offset 1000."""


def told(body: str, address: str, offset: int, began: float, ended: float) -> Told:
    return Told(body, address, (0, offset), began, ended)


FOUND = {(0, 0): ("a", 100), (0, 1): ("b", 900), (0, 2): ("c", 1000), (0, 3): ("d", 1100)}
FIRST = [told("a", "one", 0, 1.0, 1.1), told("b", "one", 1, 2.0, 2.1)]
SECOND = [told("c", "two", 2, 3.0, 3.1), told("d", "two", 3, 4.0, 4.1)]


def test_one_reign_after_the_other_is_clean() -> None:
    found = judge([*FIRST, *SECOND], FOUND, EPOCHS)
    assert found.is_clean
    assert found.acknowledged == 4


def test_what_is_not_at_its_place_is_lost() -> None:
    other = told("x", "one", 1, 2.0, 2.1)
    gone = told("y", "one", 7, 2.0, 2.1)
    assert judge([*FIRST, other, gone], FOUND, EPOCHS).lost == [other, gone]


def test_two_brokers_in_one_epoch_are_found() -> None:
    stray = told("d", "one", 3, 3.5, 3.6)
    assert judge([*FIRST, SECOND[0], stray], FOUND, EPOCHS).two_in_one == {3: ["one", "two"]}


def test_an_old_reign_that_acknowledges_after_a_new_one_did_is_found() -> None:
    late = told("b", "one", 1, 3.2, 3.3)
    assert judge([FIRST[0], late, *SECOND], FOUND, EPOCHS).overlapping == [(late, SECOND[0])]


def test_a_send_that_was_under_way_when_the_reign_changed_is_none() -> None:
    slow = told("b", "one", 1, 2.9, 3.5)  # its answer may have left long before it was read
    assert judge([FIRST[0], slow, *SECOND], FOUND, EPOCHS).is_clean
