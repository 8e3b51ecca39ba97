"""From differing places to a verdict that people read."""

from pathlib import Path
from typing import Any

import pytest
from tests.golden import unpack

from tandemq.spark.jobs.audit import AuditResult, _bounds, _summarise
from tandemq.spark.source.store_files import StoreFiles


def row(kind: str, offset: int, size: int, topic: str | None = "t") -> dict[str, Any]:
    return {"kind": kind, "physical_offset": offset, "size": size, "topic": topic, "replica": "a"}


def test_neighbours_are_one_range_and_queues_have_none() -> None:
    result = AuditResult()
    _summarise(
        result, [row("differs", 0, 10), row("missing", 10, 5), row("damaged", 40, 5, None), row("queue", 3, 9)], 2
    )
    assert not result.equal
    assert result.ranges == [(0, 15), (40, 45)]
    assert result.by_kind == {"differs": 1, "missing": 1, "damaged": 1, "queue": 1}
    assert result.by_topic == {"t": 3, "?": 1}
    assert (result.count, len(result.differences)) == (4, 2)


def test_nothing_different_is_equal() -> None:
    result = AuditResult()
    _summarise(result, [], 10)
    assert result.equal
    assert result.to_json()["differences"] == []


@pytest.fixture
def stores(tmp_path: Path) -> list[StoreFiles]:
    unpack("5.3.3", tmp_path)
    return [StoreFiles(tmp_path / name, name) for name in ("master-clean", "slave-clean")]


def test_replicas_are_compared_where_all_have_a_log(stores: list[StoreFiles]) -> None:
    """What one has deleted already is a note, not a difference."""
    Path(stores[0].segments()[0].path).unlink()
    result, replicas = _bounds(stores)
    assert [replica.label for replica in replicas] == ["master-clean", "slave-clean"]
    assert result.start == stores[0].segments()[0].start > 0
    assert result.stop == max(replica.end for replica in replicas)
    assert "slave-clean keeps" in result.notes[0]
