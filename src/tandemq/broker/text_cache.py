"""Keeps what was made of texts that clients sent, bounded by the characters of the texts.

A filter takes up to a hundred times the memory of its text, and the texts are others': a bound in entries alone would
be a bound of half a gigabyte. Used on the loop and beside it.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")

ENTRY_SIZE = 64
"""Characters that every entry counts besides its text."""


class TextCache(Generic[V]):
    """Call it with a text: `make(text)`, or what that gave before. The least recently used go first."""

    def __init__(self, make: Callable[[str], V], size_max: int) -> None:
        self._make = make
        self._size_max = size_max
        self._made: dict[str, V] = {}
        """In order of their last use."""
        self._lock = threading.Lock()
        self.size = 0
        """Characters held."""

    def __contains__(self, text: str) -> bool:
        return text in self._made

    def __call__(self, text: str) -> V:
        with self._lock:
            if text in self._made:
                value = self._made[text] = self._made.pop(text)
                return value
        value = self._make(text)
        with self._lock:
            if text not in self._made:
                self._made[text] = value
                self.size += len(text) + ENTRY_SIZE
            while self.size > self._size_max:
                oldest = next(iter(self._made))
                del self._made[oldest]
                self.size -= len(oldest) + ENTRY_SIZE
        return value
