"""What a run of the archive adds up to; the name under which it commits."""

import json
from pathlib import Path

import pytest

from tandemq.errors import ConfigError
from tandemq.spark.jobs.archive import ArchivePlan, ArchiveResult, _add, _application, _start
from tandemq.spark.lake.table import ManifestRow


def test_the_application_is_the_query_of_the_checkpoint(tmp_path: Path) -> None:
    """The same after every restart, so a repeated batch is recognised."""
    (tmp_path / "metadata").write_text(json.dumps({"id": "abc"}))
    assert _application(str(tmp_path)) == _application(f"file://{tmp_path}") == "tandemq-archive-abc"


def test_batches_are_added_up() -> None:
    result = ArchiveResult()
    _add(result, [ManifestRow("p", 10, 3, "t", "d", ""), ManifestRow("q", 20, 4, "u", "d", "")])
    _add(result, [ManifestRow("r", 5, 1, "t", "d", "")])
    assert (result.messages, result.files, result.size, result.batches) == (8, 3, 35, 2)
    assert result.to_json()["by_topic"] == {"t": 4, "u": 4}


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(ConfigError, match="source='kafka': rocketmq or rocketmq-commitlog expected"):
        _start(None, ArchivePlan("/l", "/c", "kafka", {}), [], lambda rows, batch: None)
