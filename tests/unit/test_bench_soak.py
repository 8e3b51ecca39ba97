"""The ledger of the soak: what it counts, and what it takes for growth."""

from bench.soak_ledger import Ledger, Waiting, is_flat

QUEUE = ("t", 0)


def plain(offset: int) -> Waiting:
    return Waiting("plain", 0, QUEUE, offset)


def test_what_was_acknowledged_and_has_not_come_is_missing() -> None:
    ledger = Ledger()
    ledger.note_ack("a", plain(0))
    ledger.note_received("b", 5)
    ledger.note_ack("b", plain(1))
    ledger.note_ack("c", Waiting("timed", 100, QUEUE, 0))
    assert set(ledger.missing()) == {"a", "c"}
    assert set(ledger.missing(["timed"])) == {"c"}
    ledger.note_received("a", 5)
    ledger.note_received("a", 5)
    assert set(ledger.missing()) == {"c"}
    assert ledger.acknowledged == {"plain": 2, "timed": 1}


def test_a_message_before_its_time_is_early() -> None:
    ledger = Ledger()
    for key, stored_ms in (("a", 99), ("b", 100)):
        ledger.note_ack(key, Waiting("timed", 100, QUEUE, 0))
        ledger.note_received(key, stored_ms)
    assert ledger.early == 1


def test_a_queue_that_begins_again_gives_numbers_twice() -> None:
    ledger = Ledger()
    for offset in (0, 2, 1):
        ledger.note_ack(f"{offset}", plain(offset))
    ledger.be_quiet()
    ledger.note_ack("x", plain(3))
    assert ledger.repeated_numbers == 0
    ledger.note_ack("y", plain(2))
    assert ledger.repeated_numbers == 1


def test_what_never_gets_its_answer_is_forgotten() -> None:
    ledger = Ledger()
    ledger.note_received("a", 1)
    ledger.be_quiet()
    assert ledger.came_first == {}


def test_growth_is_seen_and_noise_is_not() -> None:
    assert is_flat([100, 140, 90, 120, 110, 100, 130, 95, 115], allowance=10)
    assert not is_flat([100.0 + 10 * number for number in range(20)], allowance=10)
    assert is_flat([1, 100], allowance=0), "too few to tell"
