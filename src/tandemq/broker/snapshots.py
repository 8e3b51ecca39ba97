"""The config/*.json files of a broker: read at boot, written when a table changed.

Written as upstream's ConfigManager does: the old file becomes `.bak`, the new one is written beside, made durable and
put in its place by a rename, so that a crash at any point leaves a readable file or its backup. Text is made on the
loop (a consistent picture), the disk is touched in a worker thread; changes during a write share the next one.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tandemq.codec import fastjson
from tandemq.errors import CodecError, ConfigError

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


def read_snapshot(path: Path) -> dict[str, Any] | None:
    """The object in the file, or in its backup; None when there is neither."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            text = candidate.read_bytes()
        except FileNotFoundError:
            continue
        if not text.strip():
            continue
        try:
            found = fastjson.loads(text)
        except CodecError as error:
            log.warning("%s can't be read, trying its backup: %s", candidate, error)
            continue
        if isinstance(found, dict):
            return found
    if path.exists():
        raise ConfigError(f"neither {path} nor its .bak holds a JSON object; restore one of them or remove both")
    return None


def write_snapshot(path: Path, text: bytes) -> None:
    """Replaces the file durably, keeping the old one as `.bak`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".tmp")
    with open(new, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, path.with_name(path.name + ".bak"))
    os.replace(new, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def snapshot_text(snapshot: Mapping[str, Any]) -> bytes:
    """One member a line, as people and diffs like it. Integer keys are quoted: upstream reads both, and writing the
    offsets of a big broker takes milliseconds this way, not a tenth of a second of its loop."""
    return msgspec.json.format(_encode(snapshot), indent=1)


class SnapshotFile:
    """One table's file. `mark()` asks for a save soon; `saved()` waits until everything marked so far is on disk."""

    def __init__(self, path: Path, take: Callable[[], Mapping[str, Any]]) -> None:
        self.path = path
        self._take = take
        self._marked = False
        self._task: asyncio.Task[None] | None = None

    def load(self) -> dict[str, Any] | None:
        return read_snapshot(self.path)

    def mark(self) -> None:
        """Something changed; a save starts in this loop turn's wake."""
        self._marked = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._save())

    async def saved(self) -> None:
        """Returns when no change waits to be saved."""
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def _save(self) -> None:
        while self._marked:
            self._marked = False
            text = snapshot_text(self._take())
            try:
                await asyncio.to_thread(write_snapshot, self.path, text)
            except OSError as error:
                # The next change tries again; the table in memory stays right.
                log.error("%s was not saved: %s", self.path, error)
