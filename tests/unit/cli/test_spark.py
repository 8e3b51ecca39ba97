"""`tandemq spark`: options from flags; sizes as people read them."""

import pytest

from tandemq.cli.spark import _size, _source
from tandemq.errors import ConfigError


def test_a_job_reads_a_cluster_or_files() -> None:
    kind, options = _source("", "n:1", "a,b", ["pullSize=10"])
    assert (kind, options) == ("rocketmq", {"nameserver": "n:1", "pullSize": "10", "subscribe": "a,b"})
    for store, namesrv in (("", ""), ("/s", "n:1")):
        with pytest.raises(ConfigError, match="give either --store"):
            _source(store, namesrv, "", None)
    with pytest.raises(ConfigError, match="--option 'x': name=value expected"):
        _source("", "n:1", "t", ["x"])


def test_without_topics_all_but_the_brokers_own_are_read() -> None:
    import re

    pattern = _source("", "n:1", "", None)[1]["subscribePattern"]
    assert re.fullmatch(pattern, "orders")
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "TBW102", "TANDEMQ_SPARK_LEDGER"):
        assert not re.fullmatch(pattern, topic)


def test_sizes_as_people_read_them() -> None:
    assert [_size(n) for n in (5, 2048, 3 << 20, 5 << 40)] == ["5 B", "2.0 KiB", "3.0 MiB", "5.0 TiB"]
