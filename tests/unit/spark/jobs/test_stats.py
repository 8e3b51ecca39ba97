"""Offsets of groups as rows; the page from plain numbers."""

from pathlib import Path

import pytest

from tandemq.errors import ConfigError
from tandemq.spark.jobs.stats import StatsResult, _rows_of, stats, write_report

T0 = 1_700_000_000_000


def test_committed_offsets_of_users_are_rows() -> None:
    table = {"t@GID_a": {0: 5, 1: 7}, "%RETRY%GID_a@GID_a": {0: 1}, "t@CID_RMQ_SYS_TRANS": {0: 2}}
    assert _rows_of(table, "b") == [("GID_a", "t", 0, 5, "b"), ("GID_a", "t", 1, 7, "b")]


def measured(topic: str, window: int, rate: float) -> dict[str, object]:
    return {
        "topic": topic, "window": window, "messages": 5, "bytes": 500, "rate": rate, "byte_rate": 50.0,
        "body_mean": 90.0, "body_p50": 90, "body_p99": 95, "latency_p50_ms": 1, "latency_p99_ms": 3,
        "latency_max_ms": 4,
    }  # fmt: skip


def test_the_page_shows_what_was_measured(tmp_path: Path) -> None:
    result = StatsResult(60.0)
    result.topics = [measured("orders", T0, 5.0)]
    result.windows = [measured("orders", T0, 5.0), measured("orders", T0 + 600_000, 7.0)]
    result.tags = [{"topic": "orders", "tag": None, "messages": 5}]
    result.producers = [{"host": "10.0.0.1", "topic": "orders", "messages": 5}]
    result.groups = [{"group": "g", "topic": "orders", "lag": 3, "oldest": T0}]
    result.group_windows = [{"group": "g", "topic": "orders", "window": T0, "waiting": 3}]
    write_report(result, str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text()
    for part in ("orders · (none)", "10.0.0.1", "g · orders", "windows of 60 s", "2023-11-14 22:13:20 to"):
        assert part in text


def test_a_window_has_a_length() -> None:
    with pytest.raises(ConfigError, match="window must be longer than 0"):
        stats(None, "rocketmq", {}, window="0s")
