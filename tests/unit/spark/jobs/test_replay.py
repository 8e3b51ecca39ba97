"""What is replayed is pinned once and for all."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tandemq.errors import ConfigError
from tandemq.spark.jobs import replay as job
from tandemq.spark.jobs.replay import ReplayPlan, _pinned


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReplayPlan:
    monkeypatch.setattr(job, "_pin_lake", lambda plan: {"version": 7})
    return ReplayPlan("n", str(tmp_path / "state"), {"nameserver": "n:1", "topic": "t"}, lake="/lake")


def test_a_second_run_takes_over_what_the_first_decided(plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the number of tasks: a row's place is its identity."""
    assert _pinned(plan, 2) == ({"version": 7, "tasks": 2}, False)
    monkeypatch.setattr(job, "_pin_lake", lambda plan: {"version": 99})
    assert _pinned(plan, 16) == ({"version": 7, "tasks": 2}, True)
    assert json.loads((Path(plan.state) / "plan.json").read_text())["pinned"]["tasks"] == 2


def test_another_replay_needs_another_state(plan: ReplayPlan) -> None:
    _pinned(plan, 2)
    with pytest.raises(ConfigError, match=r"belongs to another replay \(where, keep_queues differ\)"):
        _pinned(replace(plan, where="tags = 'a'", keep_queues=True), 2)


def test_one_source_is_given(plan: ReplayPlan) -> None:
    for wrong in (replace(plan, store="/s"), replace(plan, lake="")):
        with pytest.raises(ConfigError, match="either a lake or a store"):
            _pinned(wrong, 2)


def test_a_lake_must_have_what_order_and_messages_need(tmp_path: Path) -> None:
    from tandemq.spark.lake.table import Lake, archive_columns

    lake = Lake(str(tmp_path / "lake"))
    lake.create(archive_columns(["body", "topic"]))
    plan = ReplayPlan("n", str(tmp_path / "s"), {}, lake=lake.root)
    with pytest.raises(ConfigError, match="lacks the columns broker, flag, keys"):
        _pinned(plan, 1)
