"""A small file that two threads replace: never older content over newer."""

import threading
from collections.abc import Callable
from pathlib import Path

from tandemq.store.disk import Disk


class OrderedFile:
    """The order is the one in which contents were made, by the owner's thread; any thread may write them."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._made = 0
        self._written = 0
        self._lock = threading.Lock()

    def replacement(self, data: bytes) -> Callable[[], None]:
        """Returns a function that makes `data` the content, durably; it does nothing once newer content is there."""
        self._made += 1
        number = self._made

        def write() -> None:
            with self._lock:
                if number > self._written:
                    self._disk.replace_file(self._path, data)
                    self._written = number

        return write

    def remove(self) -> None:
        """Removes the file; contents made before are not written any more."""
        self._made += 1
        with self._lock:
            self._disk.remove(self._path)
            self._written = self._made
