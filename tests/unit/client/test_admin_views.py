"""What Admin answers."""

from tandemq.client.admin_views import GroupProgress, QueueLag, QueueStatus
from tandemq.model.topic import QueueRef

QUEUE = QueueRef("T", "a", 0)


def test_counts_and_lags_are_differences() -> None:
    assert QueueStatus(QUEUE, 3, 10, 0).count == 7
    assert QueueLag(QUEUE, 10, 4, 0).lag == 6
    assert QueueLag(QUEUE, 10, -1, 0).lag == 10, "a group that never committed has everything before it"
    assert QueueLag(QUEUE, 3, 10, 0).lag == 0, "a reset broker"


def test_the_lag_of_a_group_is_that_of_its_queues() -> None:
    assert GroupProgress("g", (QueueLag(QUEUE, 10, 4, 0), QueueLag(QUEUE, 5, 5, 0)), 0.0).lag == 6
