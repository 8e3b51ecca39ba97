"""Options of topics that are read from a live cluster."""

import pytest

from tandemq.errors import ConfigError
from tandemq.model.read_from import ReadFrom
from tandemq.spark.options import PullOptions, parse


def test_a_cluster_and_topics_are_needed() -> None:
    with pytest.raises(ConfigError, match="nameserver: missing"):
        parse(PullOptions, {"subscribe": "t"})
    with pytest.raises(ConfigError, match="one of subscribe, subscribePattern or assign"):
        parse(PullOptions, {"nameserver": "n:1"})


def test_progress_is_committed_to_a_group() -> None:
    with pytest.raises(ConfigError, match="needs groupId"):
        parse(PullOptions, {"nameserver": "n:1", "subscribe": "t", "commitGroupOffsets": "true"})


def test_one_filter_of_the_broker_at_a_time() -> None:
    with pytest.raises(ConfigError, match=r"of sql='a > 1' and tags='x' only one"):
        parse(PullOptions, {"nameserver": "n:1", "subscribe": "t", "sql": "a > 1", "tags": "x"})


def test_reads_come_from_a_kind_of_member_or_from_addresses() -> None:
    def given(read_from: str) -> PullOptions:
        return parse(PullOptions, {"nameserver": "n:1", "subscribe": "t", "readFrom": read_from})

    assert (given("any").preference, given("any").read_from_addresses) == (ReadFrom.ANY, ())
    assert given("h:1, [::1]:2").read_from_addresses == ("h:1", "[::1]:2")
    assert (given("observer").preference, given("observer").read_from_addresses) == (ReadFrom.OBSERVER, ())
    for wrong, hint in (("h", "nor HOST:PORT"), (" ", "or HOST:PORT")):
        with pytest.raises(ConfigError, match=hint):
            given(wrong)
