"""`config/*.json` of a store: read tolerantly, replaced atomically, with the version before kept as `.bak`
(ConfigManager).

Upstream's files are fastjson's, integer keys without quotes; `codec.fastjson` reads and writes that.
"""

from pathlib import Path
from typing import Any

from tandemq.codec import fastjson
from tandemq.codec.table_text import table_of
from tandemq.errors import CodecError
from tandemq.formats.layout import CONFIG, journal_path
from tandemq.store.disk import Disk

TOPICS = "topics.json"


class ConfigFiles:
    """The tables of one store by file name."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self.directory = root / CONFIG

    def load(self, name: str) -> Any | None:
        """Returns the file's value with the changes in its journal; None when there is nothing readable.

        A file that is missing, empty or unreadable is read from its `.bak`.
        """
        journal = journal_path(self.directory / name)
        changes = self._disk.read_file(journal) if self._disk.file_size(journal) else b""
        for path in (self.directory / name, self._backup(name)):
            if self._disk.file_size(path):
                try:
                    return table_of(self._disk.read_file(path), changes)[0]
                except CodecError:
                    continue
        return None

    def save(self, name: str, value: Any) -> None:
        """Saves durably: at every moment the file or its `.bak` is whole."""
        self._disk.make_directory(self.directory)
        path = self.directory / name
        if self._disk.file_size(path):
            self._disk.replace_file(self._backup(name), self._disk.read_file(path))
        self._disk.replace_file(path, fastjson.dumps_pretty(value))

    def _backup(self, name: str) -> Path:
        return self.directory / f"{name}.bak"
