"""RocketMQ 5's checkpoint of timer messages, as bytes."""

from dataclasses import replace
from struct import pack, unpack_from

from tandemq.formats.timer_checkpoint import TimerCheckpoint

ONE = TimerCheckpoint(read_ms=1_700_000_000_000, seen_below=17, version=3)


def test_the_file_and_the_answer_say_the_same() -> None:
    assert len(ONE.encode()) == 56
    assert len(ONE.encode_file()) == 4096
    assert TimerCheckpoint.decode(ONE.encode()) == TimerCheckpoint.decode(ONE.encode_file()) == ONE


def test_the_first_releases_say_no_version() -> None:
    assert TimerCheckpoint.decode(pack(">4q", 5, 104, 7, 9)) == TimerCheckpoint(read_ms=5, seen_below=9)


def test_a_broker_without_a_wheel_says_nothing() -> None:
    for data in (b"", bytes(31), bytes(56), bytes(4096), pack(">4q", 5, 0, 0, -1)):
        assert TimerCheckpoint.decode(data) is None


def test_a_slave_without_a_timer_log_claims_none() -> None:
    """RocketMQ would skip what waits: it goes on after what its timer log holds."""
    assert unpack_from(">4q", ONE.encode()) == (1_700_000_000_000, 0, 0, 17)
    left = replace(ONE, in_log_below=17)
    assert unpack_from(">4q", left.encode()) == (1_700_000_000_000, 0, 17, 17)
    assert TimerCheckpoint.decode(left.encode()) == ONE
