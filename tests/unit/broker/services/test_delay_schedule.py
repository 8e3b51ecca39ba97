"""The delay schedule: progress per level, due times, and what may be saved."""

from tandemq.broker.services.delay_schedule import DelaySchedule

DELAYS = (1000, 5000, 10_000)


def _schedule() -> DelaySchedule:
    return DelaySchedule(DELAYS, lambda: 42)


def test_due_times_follow_the_level() -> None:
    """Store time plus the level's delay; a time too far ahead (a clock went back) is due now."""
    schedule = _schedule()
    assert schedule.due_at(2, 100_000, 100_500) == 105_000
    assert schedule.due_at(2, 200_000, 100_000) == 100_000


def test_the_next_wake_up_is_the_earliest_head() -> None:
    """Only heads count; a level whose head is delivered has to be looked at again."""
    schedule = _schedule()
    assert schedule.next_due() is None
    schedule.head_is(1, 2000)
    schedule.head_is(3, 1500)
    assert schedule.next_due() == 1500
    assert schedule.due_levels(1500) == [3]
    assert schedule.due_levels(2500) == [3, 1]
    schedule.move_to(3, 1, copy_end=10)
    assert not schedule.knows_head(3)
    assert schedule.next_due() == 2000


def test_only_durable_progress_is_saved() -> None:
    """delayOffset.json must not say delivered for a copy that a power cut can take."""
    schedule = _schedule()
    schedule.move_to(1, 1, copy_end=100)
    schedule.move_to(1, 2, copy_end=200)
    schedule.move_to(2, 7, copy_end=300)
    schedule.flushed(250)
    assert schedule.snapshot(durable=True)["offsetTable"] == {1: 2}
    assert schedule.snapshot()["offsetTable"] == {1: 2, 2: 7}
    schedule.flushed(300)
    assert schedule.snapshot(durable=True)["offsetTable"] == {1: 2, 2: 7}


def test_marks_are_bounded_and_stay_true() -> None:
    """Without a flush for long, marks grow coarser: progress becomes durable later, never too early."""
    schedule = _schedule()
    for n in range(1, 5001):
        schedule.move_to(1, n, copy_end=n * 10)
    schedule.flushed(20_000)
    assert schedule.snapshot(durable=True)["offsetTable"].get(1, 0) * 10 <= 20_000
    schedule.flushed(50_000)
    assert schedule.snapshot(durable=True)["offsetTable"] == {1: 5000}


def test_snapshots_load_in_upstreams_shape() -> None:
    """Keys are levels, quoted or not; nonsense is dropped."""
    schedule = _schedule()
    schedule.load(
        {"dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 9}, "offsetTable": {1: 8, "18": 4, 0: 1}}
    )
    assert schedule.offset(1) == 8
    assert schedule.offset(18) == 4
    assert schedule.offset(2) == 0
    assert schedule.version.counter == 3
    assert schedule.snapshot(durable=True)["offsetTable"] == {1: 8, 18: 4}


def test_it_goes_on_from_what_the_log_says_not_from_what_runs_ahead_of_it() -> None:
    schedule = _schedule()
    schedule.load({"offsetTable": {1: 50, 2: 9}}, position=1000)
    schedule.begin({1: 20}, lambda level: 40)
    assert (schedule.offset(1), schedule.offset(2)) == (20, 0)
    assert schedule.dirty


def test_where_the_log_says_nothing_it_goes_on_from_the_file_but_not_beyond_the_queue() -> None:
    schedule = _schedule()
    schedule.load({"offsetTable": {1: 50, 2: 9}})
    schedule.begin(None, lambda level: 40)
    assert (schedule.offset(1), schedule.offset(2)) == (40, 9)


def test_what_a_rocketmq_broker_has_delivered_since_counts() -> None:
    """It writes delayOffset.json without our position, and no progress into the log."""
    schedule = _schedule()
    schedule.load({"offsetTable": {1: 30, 2: 1}})
    assert schedule.is_foreign
    schedule.begin({1: 20, 2: 5}, lambda level: 100)
    assert (schedule.offset(1), schedule.offset(2)) == (30, 5)
    schedule.flushed(77)
    ours = schedule.snapshot(durable=True)
    assert ours["logPosition"] == 77
    again = _schedule()
    again.load(ours)
    assert not again.is_foreign


def test_a_level_that_no_longer_exists_waits_as_long_as_the_last() -> None:
    schedule = DelaySchedule((1000, 5000), lambda: 0)
    assert list(schedule.levels) == [1, 2]
    schedule.cover(4)
    assert list(schedule.levels) == [1, 2, 3, 4]
    assert schedule.due_at(4, 10_000, 10_000) == 15_000
