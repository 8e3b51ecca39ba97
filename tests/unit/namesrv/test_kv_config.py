"""The key-value configuration survives restarts and refuses to grow without bound."""

from pathlib import Path

import pytest

from tandemq.errors import ConfigError, ReplyError
from tandemq.namesrv.kv_config import KvConfig


def test_changes_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "kvConfig.json"
    kv = KvConfig(path, 10)
    kv.put("ORDER_TOPIC_CONFIG", "t", "broker-a:4")
    kv.put("ns", "k", "ü")
    kv.delete("ns", "k")
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
    kv.put("a", "b", "c")
    kv._path = tmp_path / "file" / "kvConfig.json"
    with pytest.raises(OSError):
        kv.put("a", "b", "d")
    assert kv.get("a", "b") == "c"


def test_bounds() -> None:
    kv = KvConfig(None, 1)
    kv.put("a", "b", "c")
    kv.put("a", "b", "d")
    with pytest.raises(ReplyError, match="kvEntriesMax is 1"):
        kv.put("a", "c", "d")
    with pytest.raises(ReplyError, match="65536"):
        kv.put("a", "b", "x" * 70_000)
