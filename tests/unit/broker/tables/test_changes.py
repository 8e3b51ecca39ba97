"""Which keys changed since when."""

from tandemq.broker.tables.changes import Changes


def test_a_reader_learns_what_it_does_not_know() -> None:
    changes: Changes[str] = Changes()
    for key in "abc":
        changes.note(key)
    assert changes.since(0) == ["a", "b", "c"]
    assert changes.since(2) == ["c"]
    assert changes.since(3) == []


def test_a_key_is_listed_once_by_its_newest_change() -> None:
    changes: Changes[str] = Changes()
    for key in "abab":
        changes.note(key)
    assert changes.since(0) == ["a", "b"]
    assert changes.since(3) == ["b"]


def test_old_changes_are_forgotten_and_their_reader_is_told() -> None:
    """Memory stays within twice the limit; whoever knows less reads everything."""
    changes: Changes[int] = Changes(keys_max=10)
    for key in range(21):
        changes.note(key)
    assert changes.since(0) is None
    assert changes.since(10) is None
    assert changes.since(11) == list(range(11, 21))
    for key in range(100, 111):
        changes.note(key)
    assert changes.since(changes.count - 10) == list(range(101, 111))


def test_a_number_from_another_run_is_unknown() -> None:
    changes: Changes[str] = Changes()
    changes.note("a")
    assert changes.since(2) is None


def test_a_replaced_table_is_read_anew() -> None:
    changes: Changes[str] = Changes()
    changes.note("a")
    changes.replaced()
    assert changes.since(1) is None
    changes.note("b")
    assert changes.since(2) == ["b"]
