"""Tables of progress wait until the log they speak of is here."""

from tandemq.broker.pair_tables import HeldTables


def test_a_table_waits_for_its_position() -> None:
    held = HeldTables()
    held.hold("offsets", 100, b"a")
    assert held.reached(99) == []
    assert held.reached(100) == [("offsets", 100, b"a")]
    assert not held
    assert held.reached(200) == []


def test_a_slave_that_stays_behind_learns_the_oldest_and_keeps_the_newest() -> None:
    held = HeldTables()
    for position in range(100, 200):
        held.hold("offsets", position, b"%d" % position)
    held.hold("delay", 150, b"d")
    assert len(held) == 3
    assert held.reached(100) == [("offsets", 100, b"100")]
    held.hold("offsets", 300, b"300")
    assert held.reached(250) == [("offsets", 199, b"199"), ("delay", 150, b"d")]
    assert held.reached(300) == [("offsets", 300, b"300")]


def test_of_several_that_are_true_the_newest_counts() -> None:
    held = HeldTables()
    held.hold("offsets", 1, b"old")
    held.hold("offsets", 2, b"new")
    assert held.reached(5) == [("offsets", 2, b"new")]
    assert not held


def test_what_is_dropped_never_comes() -> None:
    held = HeldTables()
    held.hold("offsets", 1, b"")
    held.hold("delay", 1, b"")
    held.drop("offsets")
    assert held.reached(1) == [("delay", 1, b"")]
    held.hold("delay", 2, b"")
    held.clear()
    assert not held
