"""The one thread that writes the tables' files: what blocks on a disk never runs on the loop."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class TableWriter:
    """Runs one write after the other, in the order they were asked for. The thread starts with the first."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tables")

    async def run(
        self, work: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        """Returns what `work` returns, or raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: work(*arguments, **named))

    def close(self) -> None:
        """Ends the thread after what it was asked to do."""
        self._executor.shutdown(wait=True)


def replace_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Replaces a file durably, and keeps the old one as `.bak`, as upstream's ConfigManager does.

    The new file is written beside the old one and renamed, so that a crash at any point leaves a readable file or its
    backup.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(path.name + ".tmp")
    new.unlink(missing_ok=True)  # one that a crash left may be open to others
    with open(new, "wb", opener=private) as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, path.with_name(path.name + ".bak"))
    os.replace(new, path)
    sync_directory(path.parent)


def private(path: str, flags: int) -> int:
    """Opens a file that only its owner may read; for `open(..., opener=private)`. One of the tables holds passwords."""
    return os.open(path, flags, 0o600)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
