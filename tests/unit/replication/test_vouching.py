"""The word of the in-sync members: counted from when the question left, and all of them are needed."""

from tandemq.replication.vouching import OPEN_MAX, Words


def test_all_who_are_needed_must_have_given_their_word() -> None:
    words = Words(2.0)
    first = words.ask(10.0)
    assert first is not None
    words.given("b", first)
    assert words.until({"b"}, 10.2) == 11.8
    assert words.until({"b", "c"}, 10.2) == float("-inf")


def test_the_oldest_word_counts() -> None:
    words = Words(2.0)
    first, second = words.ask(10.0), words.ask(10.5)
    assert first is not None
    assert second is not None
    words.given("b", first)
    words.given("c", second)
    assert words.until({"b", "c"}, 10.6) == 11.8
    words.given("b", second)
    words.given("b", first)  # an answer that was overtaken
    assert words.until({"b", "c"}, 10.6) == 12.3


def test_questions_are_not_asked_more_often_than_eight_times_a_lease() -> None:
    words = Words(2.0)
    assert words.ask(10.0) == 1
    assert words.ask(10.2) is None
    assert words.ask(10.25) == 2


def test_an_answer_to_a_question_nobody_asked_counts_for_nothing() -> None:
    words = Words(2.0)
    words.given("b", 5)
    assert words.until({"b"}, 10.0) == float("-inf")


def test_questions_without_an_answer_are_forgotten_in_the_end() -> None:
    words = Words(2.0)
    for step in range(OPEN_MAX + 1):
        words.ask(10.0 + step)
    words.given("b", 1)
    assert words.until({"b"}, 99.0) == float("-inf")


def test_one_that_needs_nobody_reigns_on() -> None:
    assert Words(2.0).until((), 10.0) == 11.8
