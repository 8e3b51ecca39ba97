"""The hash of `topic#key` by tables is Java's."""

import pytest

from tandemq.formats.key_hash import SIZE_MAX, TopicHasher, absolute
from tandemq.model.message import java_hash


def test_the_key_of_the_reference() -> None:
    """`T#k1` has hash 2539445."""
    assert TopicHasher("T").key_hash(b"k1") == 2539445


@pytest.mark.parametrize("key", ["", "abc", "0A0000011234", "x" * SIZE_MAX, "x" * (SIZE_MAX + 1), "größe", "😀😀"])
def test_keys_of_any_length_and_alphabet(key: str) -> None:
    """Asked twice: the second answer comes from the tables."""
    hasher = TopicHasher("größe")
    assert {hasher.key_hash(key.encode()) for _ in range(2)} == {absolute(java_hash(f"größe#{key}"))}


def test_the_smallest_integer_has_no_absolute_value() -> None:
    assert absolute(-(1 << 31)) == 0
    assert absolute(-5) == 5
