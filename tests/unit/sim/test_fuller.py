"""A group with tables and services: what it has is the seed's to say, and what is owed is noticed."""

from collections.abc import Callable
from typing import Any

import pytest

from tandemq.broker.services.delay import DelayService
from tandemq.broker.services.timers import TimerService
from tandemq.broker.services.transactions import TransactionService
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.sim.fuller import SHARE, Beside, FullerWorld
from tandemq.sim.simulator import simulate_with

SEED = 4


def test_about_a_seventh_of_the_seeds_have_more_than_a_log() -> None:
    count = sum(Beside.of(seed) is not None for seed in range(1000))
    assert 0.7 * SHARE < count / 1000 < 1.3 * SHARE
    assert Beside.of(7) == Beside.of(7)


def test_a_group_with_services_owes_nothing_at_the_end() -> None:
    result = simulate_with(Beside(clocks=True), SEED)
    assert not result.violation
    assert result.acknowledged


def _skips(original: Callable[..., Any]) -> Callable[..., Any]:
    """Commits one message further than the consumer has come."""

    def commit(self: OffsetTable, group: str, topic: str, queue_id: int, offset: int) -> None:
        original(self, group, topic, queue_id, offset + (topic == "t"))

    return commit


@pytest.mark.parametrize(
    ("service", "method", "instead", "told"),
    [
        (DelayService, "start", lambda original: lambda self: None, "SCHEDULE_TOPIC_XXXX"),
        (TimerService, "start", lambda original: lambda self: None, "rmq_sys_wheel_timer"),
        (TransactionService, "_check_one", lambda original: lambda self, limits: False, "RMQ_SYS_TRANS_HALF_TOPIC"),
        (OffsetTable, "commit", _skips, "the group skips message"),
    ],
    ids=["delays", "timers", "transactions", "consumer offsets"],
)
def test_what_is_owed_is_noticed(
    service: type, method: str, instead: Callable[..., Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FullerWorld, "faults_until", 0.5)
    monkeypatch.setattr(FullerWorld, "settled_by", 10.0)
    monkeypatch.setattr(service, method, instead(service.__dict__[method]))
    assert told in simulate_with(Beside(), SEED).violation
