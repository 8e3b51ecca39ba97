"""The progress bar of commands that go through a store."""

from typing import Any

from tandemq.cli.render import progress

MEBIBYTE = 1 << 20


class MebibyteBar:
    """A progress bar in MiB for work that reports (done, total) bytes."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._context: Any = None
        self._advance: Any = None
        self._done = 0

    def __enter__(self) -> "MebibyteBar":
        return self

    def __call__(self, done: int, total: int) -> None:
        if self._context is None:
            self._context = progress(f"{self._description} (MiB)", total // MEBIBYTE)
            self._advance = self._context.__enter__()
        self._advance(done // MEBIBYTE - self._done)
        self._done = done // MEBIBYTE

    def __exit__(self, *_: object) -> None:
        if self._context is not None:
            self._context.__exit__(None, None, None)
