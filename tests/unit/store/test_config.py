"""Settings of the store: what is refused names the option and what it accepts."""

import pytest

from tandemq.errors import ConfigError
from tandemq.settings import overridden
from tandemq.store.config import FlushDiskType, StoreConfig


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("deleteWhen", "04;24", "hours from 00 to 23"),
        ("deleteWhen", "", "hours from 00 to 23"),
        ("messageDelayLevel", "1s nonsense", "nonsense"),
        ("mappedFileSizeCommitLog", "1000", "4096"),
        ("flushDiskType", "SOMETIMES", "ASYNC_FLUSH"),
        ("maxIndexNum", "1", "maxIndexNum"),
    ],
)
def test_a_wrong_value_is_refused_by_name(key: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=key) as refused:
        overridden(StoreConfig(), {key: value})
    assert says in str(refused.value)


def test_values_are_read_as_rocketmq_writes_them() -> None:
    found = overridden(
        StoreConfig(), {"flushDiskType": "SYNC_FLUSH", "deleteWhen": "04; 5", "messageIndexEnable": "false"}
    )
    assert (found.flush_disk_type, found.delete_when, found.index_enable) == (FlushDiskType.SYNC_FLUSH, "04; 5", False)


@pytest.mark.parametrize(("size", "whole"), [(6_000_000, 6_000_000), (21, 40), (20, 20), (39, 40)])
def test_a_queue_file_holds_whole_entries(size: int, whole: int) -> None:
    """Upstream rounds up as well: a file of both must have the same size."""
    assert StoreConfig(consume_queue_segment_size=size).consume_queue_file_size == whole
