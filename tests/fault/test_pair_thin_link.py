"""An observer at another site: 64 MiB over 100 ms and 20 Mbit/s, cut ten times, while producers go on."""

import asyncio
from pathlib import Path

import pytest
from bench.thin_link import copy_over

SIZE = 64 << 20


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("compression", ["", "zstd"])
def test_a_log_comes_whole_over_a_thin_link_that_is_cut(compression: str, tmp_path: Path) -> None:
    """It goes on where it was, so hardly more crosses the link than the log. `./run bench replica` times it."""
    found = asyncio.run(copy_over(tmp_path, SIZE, cuts=10, compression=compression))
    assert found.cuts == 10
    assert found.differences == 0, "the logs differ"
    assert found.refused == 0, "a slow observer made the master refuse sends"
    assert found.ratio > (2 if compression else 0.9), "bytes were sent twice, or not packed"
