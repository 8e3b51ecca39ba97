"""Pacing: who is waited for gets new bytes at once, others a little later, and spares last."""

from types import SimpleNamespace
from typing import Any

from tandemq.replication.mastership.pacing import GATHER_DELAY, GATHER_SIZE, SPARE_DELAY, UNAWAITED_DELAY, Pacing, Turn
from tandemq.replication.session import Session, SessionState

END = 1000


def pacing(wanted: int, *received: int, sent: int = 0, state: SessionState = SessionState.IN_SYNC) -> Pacing:
    """A master whose log ends at 1000, with a slave for each offset, and sends that wait for so many copies."""
    sessions = {}
    for number, offset in enumerate(received, 1):
        session = sessions[number] = Session(number, f"10.0.0.{number}:1", 0.0, 0.0, 0.0, state)
        session.received, session.sent = offset, sent or offset
    core: Any = SimpleNamespace(acks=SimpleNamespace(copies_wanted=wanted), log=SimpleNamespace(end=END))
    followers: Any = SimpleNamespace(sessions=sessions)
    return Pacing(core, followers)


def test_the_slave_a_send_waits_for_gets_its_bytes_at_once() -> None:
    one = pacing(1, 900)
    assert one.appended() is None
    assert one.turn(1) is Turn.NOW


def test_with_a_frame_on_its_way_they_are_gathered_until_its_ack() -> None:
    one = pacing(1, 800, sent=900)
    one.appended()
    assert one.turn(1) is Turn.GATHER
    assert one.gather(5.0) == GATHER_DELAY
    assert one.turn(1) is Turn.NONE, "one timer is enough"
    assert one.gathered(5.1) == [1]
    assert one.turn(1) is Turn.GATHER


def test_much_or_history_is_not_gathered() -> None:
    much = pacing(0, 1000)
    much._core.log.end = 1000 + GATHER_SIZE
    assert much.turn(1) is Turn.NOW
    assert pacing(0, 900, state=SessionState.CATCHING_UP).turn(1) is Turn.NOW


def test_one_that_has_everything_has_nothing_to_wait_for() -> None:
    one = pacing(1, END)
    assert one.turn(1) is Turn.NONE
    assert one.turn(77) is Turn.NONE


def test_what_nobody_waits_for_leaves_at_once_after_a_pause_and_else_a_little_later() -> None:
    one = pacing(0, 900)
    assert one.turn(1) is Turn.GATHER
    assert one.gather(5.0) == 0.0
    assert one.gathered(5.0) == [1]
    assert abs(one.gather(5.001) - (UNAWAITED_DELAY - 0.001)) < 1e-9


def test_of_many_slaves_only_the_furthest_are_waited_for_and_the_next_in_line_is_gathered_for() -> None:
    one = pacing(1, 900, 950, 800)
    assert one.appended() == SPARE_DELAY
    assert one.appended() is None, "it was asked for already"
    assert one.spares() == [1, 3]
    assert [one.turn(number) for number in (1, 2, 3)] == [Turn.GATHER, Turn.NOW, Turn.NONE]
    assert one.gathered(0.1) == [1, 2], "a spare waits for its own timer"
    one.all_due()
    assert one.appended() == SPARE_DELAY


def test_as_many_slaves_as_are_waited_for_leave_none_to_spare() -> None:
    assert pacing(2, 900, 950).spares() == ()
    assert pacing(0, 900, 950).spares() == ()
