"""The key-value configuration: namespace -> key -> value, kept in one JSON file that is replaced as a whole.

`ORDER_TOPIC_CONFIG` is the one namespace the name server itself reads: topic -> "broker-a:4;broker-b:4".
"""

import os
from collections.abc import Mapping
from pathlib import Path

from tandemq.codec import fastjson
from tandemq.codec.bodies import object_of, text_map_of
from tandemq.errors import ConfigError, MalformedBody, ReplyError

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

VALUE_SIZE_MAX = 64 * 1024
_SYSTEM_ERROR = 1


class KvConfig:
    """Read at start, written on every change; a change is on disk before it is answered."""

    def __init__(self, path: Path | None, entries_max: int) -> None:
        self._path = path
        self._entries_max = entries_max
        self._tables: dict[str, dict[str, str]] = _read(path) if path is not None else {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        return self._tables.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        size = len(namespace) + len(key) + len(value)
        if size > VALUE_SIZE_MAX:
            raise ReplyError(_SYSTEM_ERROR, f"key-value entry of {size} characters, the limit is {VALUE_SIZE_MAX}")
        known = self.get(namespace, key) is not None
        if not known and sum(map(len, self._tables.values())) >= self._entries_max:
            raise ReplyError(_SYSTEM_ERROR, f"the key-value configuration is full, kvEntriesMax is {self._entries_max}")
        self._replace({**self._tables, namespace: {**self._tables.get(namespace, {}), key: value}})

    def delete(self, namespace: str, key: str) -> None:
        table = self._tables.get(namespace, {})
        if key in table:
            rest = {name: value for name, value in table.items() if name != key}
            self._replace({**self._tables, namespace: rest})

    def _replace(self, tables: dict[str, dict[str, str]]) -> None:
        """Writes to disk first: a failed write leaves the old values in both places."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_name(self._path.name + ".tmp")
            with fresh.open("wb") as file:
                file.write(fastjson.dumps_pretty({"configTable": tables}))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        self._tables = tables


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"kvConfigPath={path}: can't be read: {error.strerror}") from None
    try:
        tables = object_of(object_of(fastjson.loads(data), "file").get("configTable"), "configTable")
        return {str(name): text_map_of(table, str(name)) for name, table in tables.items()}
    except MalformedBody as error:
        raise ConfigError(f"kvConfigPath={path}: {error}; repair the file or move it away") from None
