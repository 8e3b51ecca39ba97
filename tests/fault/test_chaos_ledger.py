"""The judge of the chaos runs: it must find what a run may not have."""

from bench.chaos.ledger import WINDOW_S, Ledger, Verdict

QUEUE = "chaos-o/broker-a/0"


class Story:
    """One ordered stream of kind O; each call takes from `began` to `ended`."""

    def __init__(self) -> None:
        self.ledger = Ledger({"s": "O"}, ordered=["s"])
        self._number = 0

    def sent(self, *numbers: int, at: float = 0.0) -> None:
        for number in numbers:
            self.ledger.acknowledged(f"O-{number}", at)

    def tried(self, number: int, *outcomes: str) -> None:
        for outcome in outcomes:
            self.ledger.tried(f"O-{number}", outcome)

    def call(
        self, number: int, began: float, ended: float, *, member: str = "m", done: bool = True, queue: str = QUEUE
    ) -> None:
        self._number += 1
        self.ledger.began(member, self._number, "s", f"O-{number}", queue, number, began)
        if ended:
            self.ledger.ended(member, self._number, done, ended)

    @property
    def verdict(self) -> Verdict:
        return self.ledger.verdict()


def test_a_run_without_trouble_has_no_problems() -> None:
    story = Story()
    story.sent(0, 1)
    story.call(0, 1, 2)
    story.call(1, 2, 3)
    assert story.verdict.problems == []
    assert (story.verdict.acknowledged, story.verdict.handled) == ({"O": 2}, {"s": 2})


def test_what_was_acknowledged_and_never_handled_is_lost() -> None:
    story = Story()
    story.sent(0, 1)
    story.call(0, 1, 2)
    story.call(1, 2, 3, done=False)
    assert story.verdict.lost == story.ledger.missing() == ["s/O-1"]


def test_a_delivery_of_what_was_rolled_back_is_found() -> None:
    story = Story()
    story.ledger.rolled_back("O-0")
    story.call(0, 1, 2)
    assert story.verdict.rolled_back == ["s/O-0"]


def test_two_calls_of_a_queue_at_once_are_found_unless_the_first_member_died() -> None:
    story = Story()
    story.sent(0, 1)
    story.call(0, 1, 0)
    story.ledger.died("m", 5)
    story.call(0, 6, 8, member="n")
    assert story.verdict.overlapping == []
    story.call(1, 7, 9, member="m")
    assert len(story.verdict.overlapping) == 1
    other = Story()
    other.call(0, 1, 0)
    other.call(1, 100, 101)
    assert len(other.verdict.overlapping) == 1, "a call that never ended runs for ever"


def test_first_successes_out_of_order_are_found_and_repeats_are_not_taken_for_it() -> None:
    story = Story()
    story.sent(0, 1, 2)
    story.call(0, 1, 2)
    story.call(2, 2, 3)
    story.call(0, 3, 4)
    assert story.verdict.out_of_order == []
    story.call(1, 5, 6)
    assert len(story.verdict.out_of_order) == 1


def test_a_repeat_needs_a_reason_nearby() -> None:
    story = Story()
    story.sent(0, 1)
    story.ledger.disturbed(100.0)
    story.call(0, 99, 101)
    story.call(0, 102, 103, member="n")
    assert story.verdict.repeats == {"the queue changed hands": 1}
    story.call(1, 101 + WINDOW_S + 100, 300)
    story.call(1, 300, 301)
    assert len(story.verdict.unexplained) == 1


def test_in_the_calm_every_message_is_handled_once() -> None:
    story = Story()
    story.sent(0, at=11.0)
    story.ledger.disturbed(9.0)
    story.ledger.calm(10.0)
    story.call(0, 12, 13)
    story.call(0, 13, 14, member="n")
    assert len(story.verdict.unexplained) == 1
    story.ledger.said(QUEUE, "group s takes it", 13.5)
    assert story.verdict.repeats == {"the queue changed hands": 1}, "its client said why"


def test_a_message_lies_at_as_many_places_as_there_were_attempts() -> None:
    """In the calm too: a loaded machine lets sends time out, and the client says so."""
    story = Story()
    story.sent(0, at=11.0)
    story.ledger.calm(10.0)
    story.call(0, 12, 13)
    story.call(0, 13, 14, queue="chaos-o/broker-a/1")
    story.call(0, 15, 16, queue="chaos-o/broker-b/1")
    story.tried(0, "broker-a: no answer in 1500 ms", "broker-b: no answer in 750 ms")
    assert len(story.verdict.unexplained) == 2, "three places, two attempts"
    assert "no answer in 1500 ms" in story.verdict.unexplained[0]
    story.tried(0, "SEND_OK")
    assert story.verdict.repeats == {"sent again after an attempt without a clear answer, in the calm": 2}


def test_what_was_sent_again_for_a_missing_promise_is_told_apart() -> None:
    story = Story()
    story.sent(0)
    story.tried(0, "SLAVE_NOT_AVAILABLE", "SEND_OK")
    story.call(0, 1, 2)
    story.call(0, 2, 3, queue="chaos-o/broker-a/1")
    assert story.verdict.repeats == {"sent again, a promise was missing": 1}


def test_more_places_than_attempts_are_no_disturbance() -> None:
    story = Story()
    story.sent(0)
    story.tried(0, "SEND_OK")
    story.ledger.disturbed(1.0)
    story.call(0, 1, 2)
    story.call(0, 2, 3, queue="chaos-o/broker-a/1")
    assert len(story.verdict.unexplained) == 1


def test_a_failure_that_was_told_twice_needs_a_failure_and_a_word() -> None:
    story = Story()
    story.sent(0, at=11.0)
    story.ledger.calm(10.0)
    story.call(0, 12, 13, done=False)
    story.call(0, 14, 15, queue="%RETRY%g/broker-a/0")
    story.call(0, 15, 16, queue="%RETRY%g/broker-b/0")
    assert len(story.verdict.unexplained) == 1
    story.ledger.said("O-0", "was not taken back by its broker: no answer", 14.5)
    assert story.verdict.repeats == {"its failure was told twice": 1}


def test_ways_of_a_repeat_are_told_apart() -> None:
    story = Story()
    story.sent(0, 1)
    story.tried(1, "no answer", "SEND_OK")
    story.ledger.disturbed(1.0)
    story.call(0, 1, 2, done=False)
    story.call(0, 2, 3)
    story.call(0, 3, 4, queue="%RETRY%g/broker-a/0")
    story.call(1, 4, 5)
    story.call(1, 5, 6, queue="chaos-o/broker-a/1")
    story.call(1, 6, 7)
    assert story.verdict.repeats == {
        "failed, then came again by its queue and by the retry topic": 1,
        "sent again after an attempt without a clear answer": 1,
        "the queue went back": 1,
    }
