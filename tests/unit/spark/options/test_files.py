"""Options of stored files."""

import pytest

from tandemq.errors import ConfigError
from tandemq.spark.options import FileOptions, parse


def test_a_path_is_needed() -> None:
    with pytest.raises(ConfigError, match="path: missing"):
        parse(FileOptions, {})


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxRecordsPerPartition"])
def test_what_counts_queue_offsets_is_refused_in_physical_order(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} counts queue offsets and needs order=queue"):
        parse(FileOptions, {"path": "/s", name: "5"})
    parse(FileOptions, {"path": "/s", "ORDER": "queue", name: "5"})


def test_times_per_queue_need_queues() -> None:
    for name in ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(ConfigError, match=f"{name} counts queue offsets"):
            parse(FileOptions, {"path": "/s", name: '{"t": {"0": 1700000000000}}'})
