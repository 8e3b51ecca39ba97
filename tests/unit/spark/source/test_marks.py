"""Marks are few, renewed now and then, and compared when it matters. The stream's use of them: test_queue_order."""

from collections.abc import Mapping

from tandemq.model.topic import QueueRef
from tandemq.sim.clock import ManualClock
from tandemq.spark.source.marks import CHECK_SECONDS, RENEW_SECONDS, RENEWED_MAX, QueueMarks
from tandemq.spark.source.offsets import Mark, Marks, Range, Ranges

A = QueueRef("t", "b", 0)


class Queues:
    """Every message of life n lies at n × 1,000,000 + its offset."""

    def __init__(self) -> None:
        self.life = 0
        self.asked = 0

    def farthest(self, queues: list[QueueRef]) -> Ranges:
        return {}

    def marks_at(self, offsets: Mapping[QueueRef, int]) -> Marks:
        self.asked += len(offsets)
        return {queue: Mark(offset, self.life * 1_000_000 + offset, self.life) for queue, offset in offsets.items()}


def marked(clock: ManualClock) -> tuple[Queues, QueueMarks]:
    queues = Queues()
    marks = QueueMarks(queues, clock)
    marks.renew({A: 0}, {A: 10}, {A: Range(0, 10)})
    return queues, marks


def test_a_mark_is_the_last_message_that_is_read() -> None:
    _, marks = marked(ManualClock())
    assert marks.known == {A: Mark(9, 9, 0)}


def test_marks_are_renewed_when_they_are_old_or_deleted() -> None:
    clock = ManualClock()
    _, marks = marked(clock)
    marks.renew({A: 10}, {A: 20}, {A: Range(0, 20)})
    assert marks.known[A].offset == 9
    marks.renew({A: 20}, {A: 30}, {A: Range(15, 30)})
    assert marks.known[A].offset == 29
    clock.advance(RENEW_SECONDS)
    marks.renew({A: 30}, {A: 40}, {A: Range(15, 40)})
    assert marks.known[A].offset == 39


def test_a_micro_batch_takes_a_limited_number_of_marks() -> None:
    queues = Queues()
    marks = QueueMarks(queues, ManualClock())
    many = [QueueRef("t", "b", n) for n in range(RENEWED_MAX + 50)]
    starts, stops = dict.fromkeys(many, 0), dict.fromkeys(many, 5)
    ranges = dict.fromkeys(many, Range(0, 5))
    marks.renew(starts, stops, ranges)
    assert queues.asked == len(marks.known) == RENEWED_MAX
    marks.renew(starts, stops, ranges)
    assert len(marks.known) == len(many)


def test_a_queue_is_compared_every_few_seconds_and_only_if_it_has_news() -> None:
    clock = ManualClock()
    queues, marks = marked(clock)
    asked = queues.asked
    assert marks.made_anew({A: 10}, {A: Range(0, 12)}, lambda queue: True) == {}
    assert queues.asked == asked
    clock.advance(CHECK_SECONDS)
    assert marks.made_anew({A: 10}, {A: Range(0, 10)}, lambda queue: False) == {}
    assert queues.asked == asked
    queues.life = 1
    assert marks.made_anew({A: 10}, {A: Range(0, 12)}, lambda queue: True) == {A: None}
    assert marks.known == {}


def test_a_mark_that_retention_deleted_says_nothing() -> None:
    clock = ManualClock()
    queues, marks = marked(clock)
    clock.advance(CHECK_SECONDS)
    queues.life = 1
    assert marks.made_anew({A: 10}, {A: Range(10, 12)}, lambda queue: True) == {}
