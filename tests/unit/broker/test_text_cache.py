"""What is made of texts is kept by the texts' size."""

import pytest

from tandemq.broker.text_cache import ENTRY_SIZE, TextCache


def test_a_text_is_made_into_something_once() -> None:
    made: list[str] = []
    cache = TextCache(lambda text: made.append(text) or text.upper(), 10_000)  # type: ignore[func-returns-value]
    assert [cache("a"), cache("b"), cache("a")] == ["A", "B", "A"]
    assert made == ["a", "b"]


def test_the_least_recently_used_go_when_the_texts_are_too_long_together() -> None:
    made: list[str] = []
    cache = TextCache(made.append, 3 * (10 + ENTRY_SIZE))
    for text in ("a" * 10, "b" * 10, "c" * 10, "a" * 10, "d" * 10):
        cache(text)
    assert cache.size == 3 * (10 + ENTRY_SIZE)
    made.clear()
    for text in ("a" * 10, "c" * 10, "d" * 10, "b" * 10):
        cache(text)
    assert made == ["b" * 10]


def test_a_text_larger_than_the_cache_is_made_and_not_kept() -> None:
    cache = TextCache(len, 100)
    assert cache("x" * 1000) == 1000
    assert cache.size == 0


def test_what_can_not_be_made_is_not_kept() -> None:
    cache = TextCache(int, 1000)
    with pytest.raises(ValueError):
        cache("x")
    assert cache.size == 0
