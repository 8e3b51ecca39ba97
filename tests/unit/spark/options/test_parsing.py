"""From Spark's option map to typed options."""

import pytest

from tandemq.errors import ConfigError
from tandemq.spark.options import FileOptions, PullOptions, SinkOptions, described, parse
from tandemq.spark.options.parsing import knows


def test_names_are_taken_in_any_case_and_sparks_own_are_left_alone() -> None:
    given = {"NAMESERVER": "n:1", "Subscribe": "t", "checkpointLocation": "/c", "path": "x"}
    assert parse(PullOptions, given).topics == ("t",)
    assert knows(PullOptions, "SUBSCRIBE")
    assert not knows(SinkOptions, "subscribe")


def test_an_unknown_option_is_named_with_what_it_may_mean() -> None:
    with pytest.raises(ConfigError, match="unknown option 'startingOffset'; did you mean 'startingOffsets'"):
        parse(PullOptions, {"startingOffset": "latest"})
    with pytest.raises(ConfigError, match="that is Kafka's; here it is 'nameserver'"):
        parse(SinkOptions, {"kafka.bootstrap.servers": "b:9092"})
    with pytest.raises(ConfigError, match="that is Kafka's; here it is 'copies'"):
        parse(SinkOptions, {"kafka.acks": "all"})


def test_every_option_is_described() -> None:
    """Name, default and a sentence, for the documents."""
    for kind in (PullOptions, FileOptions, SinkOptions):
        assert all(name and meaning.endswith((".", "}.", "h")) for name, _, meaning in described(kind))
