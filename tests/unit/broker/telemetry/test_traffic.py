"""Counters and their windows, on a clock that the test moves."""

from tandemq.broker.telemetry import traffic as module
from tandemq.broker.telemetry.traffic import DAY_MS, BrokerStats


def _run(stats: BrokerStats, start: float, ticks: int, per_tick: int, topic: str = "T") -> float:
    now = start
    for _ in range(ticks):
        stats.put_flow(topic).add(per_tick, per_tick * 100)
        stats.get_flow(topic, "g").add(per_tick, per_tick * 100)
        now += 10
        stats.tick(now, int(now * 1000))
    return now


def test_rates_cover_their_windows() -> None:
    """A steady flow has the same rate in every window; sums grow with the window."""
    stats = BrokerStats(0.0, 0)
    now = _run(stats, 0.0, 120, 50)
    minute, hour, day = stats.item("TOPIC_PUT_NUMS", "T", now) or (None, None, None)
    assert minute is not None
    assert hour is not None
    assert day is not None
    assert round(minute.tps) == round(hour.tps) == round(day.tps) == 5
    assert (minute.sum, hour.sum, day.sum) == (300, 6000, 6000)
    assert (stats.item("GROUP_GET_SIZE", "T@g", now) or ())[0].sum == 30_000
    assert stats.put_totals(now).tps[1] == 5
    assert stats.topic_put_tps("T", now) == 5
    assert stats.group_get_tps("T", "g", now) == 5
    assert stats.topic_put_tps("unknown", now) == 0


def test_what_is_counted_before_the_first_tick_shows_at_once() -> None:
    """An administrator who looks right after the first message sees it."""
    stats = BrokerStats(0.0, 0)
    stats.put_flow("T").add(3, 30)
    minute, _, day = stats.item("TOPIC_PUT_NUMS", "T", 1.0) or (None, None, None)
    assert minute is not None
    assert day is not None
    assert (minute.sum, minute.tps, day.sum) == (3, 3.0, 3)
    assert (stats.item("BROKER_PUT_NUMS", "cluster", 1.0) or ())[0].sum == 3
    assert stats.item("TOPIC_PUT_NUMS", "U", 1.0) is None
    assert stats.item("NO_SUCH", "T", 1.0) is None


def test_days_turn_and_idle_flows_go() -> None:
    """Totals at midnight are kept; a flow without traffic for a day is dropped, its messages stay in the total."""
    stats = BrokerStats(0.0, DAY_MS - 1000)
    stats.put_flow("T").add(7, 70)
    stats.tick(10, DAY_MS + 9000)
    assert stats.mornings() == ((0, 0), (7, 0), (7, 0))
    now = 10.0
    for _ in range(26 * 360):
        now += 10
        stats.tick(now, DAY_MS + 10_000)
    stats.tick(now + 10, 2 * DAY_MS)
    assert dict(stats.topics()) == {}
    assert stats.put_totals(now + 10).messages == 7


def test_forgotten_topics_stay_in_the_totals() -> None:
    """Deleting a topic removes its flows, not what they counted."""
    stats = BrokerStats(0.0, 0)
    now = _run(stats, 0.0, 3, 10)
    stats.forget_topic("T")
    assert stats.item("TOPIC_PUT_NUMS", "T", now) is None
    assert stats.put_totals(now).messages == 30
    assert stats.get_totals(now).messages == 30


def test_the_number_of_flows_is_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Beyond the limit traffic is still counted, under one name."""
    monkeypatch.setattr(module, "FLOWS_MAX", 3)
    stats = BrokerStats(0.0, 0)
    for n in range(10):
        stats.put_flow(f"T{n}").add(1, 1)
    assert len(dict(stats.topics())) == 4
    assert stats.put_totals(1.0).messages == 10
