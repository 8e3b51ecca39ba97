"""Lag in time."""

from tandemq.client.admin_views import GroupProgress, QueueLag
from tandemq.console.pages.groups import since
from tandemq.model.topic import QueueRef


def test_the_oldest_of_the_late_queues_counts() -> None:
    lags = (
        QueueLag(QueueRef("t", "a", 0), 10, 10, 1), QueueLag(QueueRef("t", "a", 1), 10, 5, 700),
        QueueLag(QueueRef("t", "a", 2), 10, 5, 900), QueueLag(QueueRef("t", "a", 3), 10, 0, 0),
    )  # fmt: skip
    assert since(GroupProgress("g", lags, 0.0), 1000) == 300
    assert since(GroupProgress("g", lags[:1], 0.0), 1000) is None
