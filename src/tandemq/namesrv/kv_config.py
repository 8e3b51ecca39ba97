"""The key-value configuration: namespace -> key -> value, kept in one JSON file that is replaced as a whole.

`ORDER_TOPIC_CONFIG` is the one namespace the name server itself reads: topic -> "broker-a:4;broker-b:4".
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from tandemq.codec import fastjson
from tandemq.codec.bodies import object_of, text_map_of
from tandemq.errors import ConfigError, MalformedBody, ReplyError

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

VALUE_SIZE_MAX = 64 * 1024
TOTAL_SIZE_MAX = 4 * 1024 * 1024
"""Characters of all entries: each change writes them all, and a registration's answer carries a namespace."""
_SYSTEM_ERROR = 1

Tables = dict[str, dict[str, str]]


class KvConfig:
    """Read at start, written on every change, by one writer beside the loop; a change is on disk before it is answered
    or seen."""

    def __init__(self, path: Path | None, entries_max: int) -> None:
        self._path = path
        self._entries_max = entries_max
        self._tables: Tables = _read(path) if path is not None else {}
        self._size = sum(
            _size(name, key, value) for name, table in self._tables.items() for key, value in table.items()
        )
        self._writing = asyncio.Lock()

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        return self._tables.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        size = _size(namespace, key, value)
        if size > VALUE_SIZE_MAX:
            raise ReplyError(_SYSTEM_ERROR, f"key-value entry of {size} characters, the limit is {VALUE_SIZE_MAX}")
        async with self._writing:
            old = self.get(namespace, key)
            if old is None and sum(map(len, self._tables.values())) >= self._entries_max:
                raise ReplyError(
                    _SYSTEM_ERROR, f"the key-value configuration is full, kvEntriesMax is {self._entries_max}"
                )
            total = self._size + size - (_size(namespace, key, old) if old is not None else 0)
            if total > TOTAL_SIZE_MAX:
                raise ReplyError(
                    _SYSTEM_ERROR,
                    f"the key-value configuration would have {total} characters, at most {TOTAL_SIZE_MAX}",
                )
            await self._replace({**self._tables, namespace: {**self._tables.get(namespace, {}), key: value}}, total)

    async def delete(self, namespace: str, key: str) -> None:
        async with self._writing:
            table = self._tables.get(namespace, {})
            if key in table:
                rest = {name: value for name, value in table.items() if name != key}
                total = self._size - _size(namespace, key, table[key])
                await self._replace({**self._tables, namespace: rest}, total)

    async def _replace(self, tables: Tables, size: int) -> None:
        """Writes to disk first: a failed write leaves the old values in both places."""
        if self._path is not None:
            await asyncio.to_thread(_write, self._path, tables)
        self._tables, self._size = tables, size


def _size(namespace: str, key: str, value: str) -> int:
    return len(namespace) + len(key) + len(value)


def _write(path: Path, tables: Tables) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    with fresh.open("wb") as file:
        file.write(fastjson.dumps_pretty({"configTable": tables}))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _read(path: Path) -> Tables:
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
