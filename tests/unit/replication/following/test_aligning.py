"""Aligning: what becomes of our log when a master welcomes us."""

import pytest
from tests.unit.replication.slaves import A, Slave, kinds, sent

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import EpochItem, Start, Welcome
from tandemq.replication.decisions import Close, Confirm, Note, Reset, Save, Truncate
from tandemq.replication.following.core import SlavePhase

HISTORY = (EpochItem(1, "e1", 0), EpochItem(3, "e3", 400))


def told() -> Slave:
    slave = Slave()
    slave.challenge(4, "e4")
    return slave


def test_a_log_that_agrees_is_gone_on_with_as_it_is() -> None:
    slave = told()
    out = slave.welcome(1000, *HISTORY, EpochItem(4, "e4", 1000))
    assert kinds(out, Truncate, Reset, Save, Start) == [Save, Start]
    start = next(one for one in sent(out) if isinstance(one, Start))
    assert (start.number, start.offset, start.durable) == (4, 1000, 600)


def test_readers_are_shown_no_more_than_is_left_before_the_history_is_saved() -> None:
    slave = told()
    slave.state.core.confirmed = 900
    out = slave.welcome(800, HISTORY[0], EpochItem(4, "e4", 700))
    assert [type(one) for one in out[:3]] == [Truncate, Confirm, Save]
    assert slave.state.confirmed == 400


@pytest.mark.parametrize(
    ("history", "reason"),
    [((EpochItem(2, "other", 0),), Reason.DIVERGED)],
)
def test_a_log_of_another_history_begins_anew_and_all_of_it_is_saved_aside(
    history: tuple[EpochItem, ...], reason: Reason
) -> None:
    slave = told()
    out = slave.welcome(800, *history)
    reset = next(one for one in out if isinstance(one, Reset))
    assert (reset.offset, reset.save_from, reset.end, reset.event) == (0, 0, 1000, f"reset-{reason.value}")
    assert any(isinstance(one, Note) and one.event == "began-anew" for one in out)
    assert (slave.state.log.first, slave.state.log.end) == (0, 0)


def test_a_log_whose_common_part_the_master_has_deleted_begins_where_it_says() -> None:
    slave = told()
    welcome = Welcome(A, True, 4, "e4", 2000, 5000, 2000, [*HISTORY, EpochItem(4, "e4", 5000)], [], [])
    out = slave.feed(welcome)
    reset = next(one for one in out if isinstance(one, Reset))
    assert (reset.offset, reset.save_from, reset.event) == (2000, 1000, "reset-offset-gone")
    assert slave.state.log.end == 2000


def test_a_master_that_still_asks_is_waited_for() -> None:
    slave = told()
    slave.feed(Welcome(A, False, 4, "e4", 0, 1000, 0, [], [], []))
    assert slave.state.phase is SlavePhase.WAITING
    assert slave.state.record.history.last_number == 3, "its history is adopted when it is open"


def test_a_welcome_to_an_epoch_that_was_not_promised_ends_the_session() -> None:
    out = told().welcome(1000, *HISTORY, number=5)
    assert [one.reason for one in out if isinstance(one, Close)] == [Reason.PROMISED]
