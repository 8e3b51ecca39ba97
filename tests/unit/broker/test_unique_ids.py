"""Ids in the layout of Java's MessageClientIDSetter."""

from tandemq.broker.unique_ids import MONTH_MS, UniqueIds

HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))


def test_an_id_says_where_and_when() -> None:
    found = UniqueIds(HOST, lambda: 5 * MONTH_MS + 0x1234).next()
    assert len(found) == 32
    assert found == found.upper()
    assert found[:8] == "0A000001"
    assert (found[20:28], found[28:]) == ("00001234", "0001")


def test_ids_of_one_millisecond_differ_up_to_the_counters_end() -> None:
    ids = UniqueIds(HOST, lambda: 7)
    made = [ids.next() for _ in range(0x10000)]
    assert len(set(made)) == 0x10000
    assert ids.next() == made[0]


def test_two_brokers_of_one_process_make_different_ids() -> None:
    first, second = UniqueIds(HOST, lambda: 7), UniqueIds(HOST, lambda: 7)
    assert first.next() != second.next()
