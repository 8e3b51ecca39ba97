"""When routes are asked for."""

from tandemq.client.route_refresh import ALARM_PAUSES_S, RefreshTimes


def waits(times: RefreshTimes, count: int) -> list[float]:
    found = []
    for _ in range(count):
        found.append(times.wait_s())
        times.asked()
    return found


def test_without_an_alarm_routes_are_asked_for_at_their_interval() -> None:
    assert waits(RefreshTimes(30.0), 3) == [30.0, 30.0, 30.0]


def test_an_alarm_asks_at_once_and_again_with_growing_pauses() -> None:
    times = RefreshTimes(30.0)
    times.asked()
    assert times.alarm()
    assert waits(times, len(ALARM_PAUSES_S) + 1) == [*ALARM_PAUSES_S, 30.0]


def test_an_alarm_meanwhile_does_not_start_over() -> None:
    times = RefreshTimes(30.0)
    times.alarm()
    waits(times, 3)
    assert not times.alarm()
    assert times.wait_s() == ALARM_PAUSES_S[3]


def test_a_pause_is_never_longer_than_the_interval() -> None:
    times = RefreshTimes(0.1)
    times.alarm()
    assert max(waits(times, len(ALARM_PAUSES_S))) == 0.1
