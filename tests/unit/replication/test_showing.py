"""Showing: readers of a slave wait while history pours in, and for nothing else."""

from tandemq.replication.showing import BULK_PAUSE, BULK_SIZE_MIN, Showing

BULK = BULK_SIZE_MIN + 1
BACKLOG_MAX = 1 << 30


def pouring(confirmed: int = BULK, now: float = 10.0) -> Showing:
    showing = Showing(BACKLOG_MAX)
    showing.begin(0)
    showing.committed(BULK, now)
    showing.confirm(confirmed)
    return showing


def test_what_is_confirmed_is_owed() -> None:
    showing = Showing(BACKLOG_MAX)
    assert not showing.is_owed
    showing.confirm(100)
    assert showing.is_owed
    assert showing.may_show(0, 0.0)


def test_readers_wait_for_the_end_of_history_or_a_pause_in_it() -> None:
    assert not pouring().may_show(0, 10.0 + BULK_PAUSE / 2)
    assert pouring().may_show(0, 10.0 + BULK_PAUSE)


def test_small_frames_are_no_history() -> None:
    showing = Showing(BACKLOG_MAX)
    showing.committed(BULK_SIZE_MIN, 10.0)
    showing.confirm(5)
    assert showing.may_show(0, 10.0)


def test_a_backlog_larger_than_memory_is_not_waited_for() -> None:
    assert not pouring(BACKLOG_MAX + 99).may_show(100, 10.0)
    assert pouring(BACKLOG_MAX + 100).may_show(100, 10.0)


def test_a_cut_is_told_apart_because_it_is_not_put_off() -> None:
    showing = pouring(500)
    assert not showing.confirm(600)
    assert showing.confirm(400)
    assert showing.confirmed == 400


def test_a_new_session_does_not_remember_the_bulk_of_the_last() -> None:
    showing = pouring()
    showing.begin(700)
    assert showing.confirmed == 700
    assert showing.may_show(0, 10.0)
