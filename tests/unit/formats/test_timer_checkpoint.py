"""RocketMQ 5's checkpoint of timer messages, as bytes."""

from struct import pack

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
