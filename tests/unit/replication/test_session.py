"""How much of the log goes into one frame: as much as the link carries in a moment."""

from tandemq.replication.session import FRAME_SIZE_FIRST, FRAME_SIZE_LEAST, Session


def session_on(rate: float, frames: int, size_max: int = 8 << 20) -> Session:
    """Has sent full frames one after the other over a link with this rate, in bytes a second."""
    session = Session(1, "10.0.0.2:5000", 0.0, 0.0, 0.0)
    now = 1000.0
    for _ in range(frames):
        size = min(session.frame_max, size_max)
        session.was_sent(session.sent + size, now)
        now += size / rate
    return session


def test_frames_grow_on_a_fast_link() -> None:
    assert session_on(1e9, 20).frame_max >= 8 << 20


def test_a_frame_takes_less_than_a_second_on_a_thin_link() -> None:
    for rate in (125_000, 2_500_000, 12_500_000):
        assert FRAME_SIZE_LEAST <= session_on(rate, 20).frame_max < rate


def test_a_pause_between_small_frames_says_nothing_about_the_link() -> None:
    session = Session(1, "10.0.0.2:5000", 0.0, 0.0, 0.0)
    for number in range(20):
        session.was_sent(session.sent + 1000, 1000.0 + 60 * number)
    assert session.frame_max == FRAME_SIZE_FIRST
