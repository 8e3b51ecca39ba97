"""The key-value configuration survives restarts and refuses to grow without bound."""

import asyncio
from pathlib import Path

import pytest

from tandemq.errors import ConfigError, ReplyError
from tandemq.namesrv.kv_config import TOTAL_SIZE_MAX, KvConfig


def put(kv: KvConfig, namespace: str, key: str, value: str) -> None:
    asyncio.run(kv.put(namespace, key, value))


def delete(kv: KvConfig, namespace: str, key: str) -> None:
    asyncio.run(kv.delete(namespace, key))


def test_changes_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "kvConfig.json"
    kv = KvConfig(path, 10)
    put(kv, "ORDER_TOPIC_CONFIG", "t", "broker-a:4")
    put(kv, "ns", "k", "ü")
    delete(kv, "ns", "k")
    again = KvConfig(path, 10)
    assert again.get("ORDER_TOPIC_CONFIG", "t") == "broker-a:4"
    assert again.namespace("ns") == {}
    assert again.namespace("other") is None
    assert [p.name for p in path.parent.iterdir()] == ["kvConfig.json"]


def test_a_file_of_rocketmq_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"broker-a:4"}}}')
    assert KvConfig(path, 10).get("ORDER_TOPIC_CONFIG", "t") == "broker-a:4"


def test_a_damaged_file_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":')
    with pytest.raises(ConfigError, match="repair the file"):
        KvConfig(path, 10)


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kv = KvConfig(None, 10)
    put(kv, "a", "b", "c")
    kv._path = tmp_path / "file" / "kvConfig.json"
    with pytest.raises(OSError):
        put(kv, "a", "b", "d")
    assert kv.get("a", "b") == "c"


def test_bounds() -> None:
    kv = KvConfig(None, 1)
    put(kv, "a", "b", "c")
    put(kv, "a", "b", "d")
    with pytest.raises(ReplyError, match="kvEntriesMax is 1"):
        put(kv, "a", "c", "d")
    with pytest.raises(ReplyError, match="65536"):
        put(kv, "a", "b", "x" * 70_000)


def test_all_entries_together_have_a_bound_in_characters() -> None:
    kv = KvConfig(None, 100_000)
    value = "x" * 60_000
    room = TOTAL_SIZE_MAX // (len(value) + 4)
    for number in range(room):
        put(kv, "a", f"{number:03}", value)
    with pytest.raises(ReplyError, match=f"at most {TOTAL_SIZE_MAX}"):
        put(kv, "a", "one more", value)
    put(kv, "a", "000", "y" * 60_000)
    delete(kv, "a", "001")
    put(kv, "a", "two", value)
