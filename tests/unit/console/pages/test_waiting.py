"""Delays and timers are read from the masters' run-time info."""

from types import SimpleNamespace
from typing import Any

from tandemq.console.pages.waiting import _delays, _level_name, _timers
from tandemq.console.picture import Report


def visit(**facts: str) -> Any:
    master = Report(group="a", broker_id=0, address="h:1", detail={"role": "master"}, facts=facts)
    slave = Report(group="a", broker_id=1, address="h:2", detail={"role": "slave"}, facts=facts)
    return SimpleNamespace(snapshot=SimpleNamespace(reports=(master, slave)))


def test_levels_are_counted_on_masters_alone() -> None:
    found = visit(scheduleMessageOffset_3="5,9", scheduleMessageOffset_x="1,2", scheduleMessageOffset_4="-1,x")
    assert _delays(found) == {3: [("a", 4, 5)]}
    assert (_level_name(3), _level_name(18), _level_name(40)) == ("10s", "2h", "level 40")


def test_timers_nobody_tells_of_are_not_known() -> None:
    assert _timers(visit(timerCongestNum="7")) == 7
    assert _timers(visit()) is None
