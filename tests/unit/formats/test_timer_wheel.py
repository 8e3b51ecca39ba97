"""The timer log that RocketMQ makes its wheel of."""

from tandemq.formats.timer_wheel import AGAIN, ONCE, UNIT, Waiting, encode_timer_log, slot_of

NOW = 1_700_000_000_500
START = slot_of(NOW)


def units(data: bytes) -> list[tuple[int, int, int, int]]:
    """(previous unit, magic, slot, physical offset) of each."""
    found = []
    for size, previous, magic, written, delay, physical_offset, _, _, _ in UNIT.iter_unpack(data):
        assert size == UNIT.size == 52
        found.append((previous, magic, written + delay, physical_offset))
    return found


def test_units_of_a_slot_are_chained() -> None:
    data = encode_timer_log(
        [Waiting(NOW + 5000, 10, 1), Waiting(NOW + 9000, 20, 1, is_far=True), Waiting(NOW + 5200, 30, 1)],
        Waiting(0, 30, 1),
        NOW,
    )
    assert units(data) == [
        (-1, ONCE, START + 5000, 10),
        (-1, AGAIN, START + 9000, 20),
        (0, ONCE, START + 5000, 30),
    ]


def test_what_is_overdue_comes_in_the_slot_that_is_read_next() -> None:
    assert units(encode_timer_log([Waiting(NOW - 90_000, 10, 1)], None, NOW)) == [(-1, ONCE, START, 10)]


def test_the_newest_message_ends_the_log_in_the_past_if_it_does_not_wait() -> None:
    """RocketMQ goes on with the message after the one that the last unit names."""
    found = units(encode_timer_log([Waiting(NOW + 5000, 10, 1)], Waiting(0, 40, 1), NOW))
    assert found[-1] == (-1, ONCE, START - 60_000, 40)
