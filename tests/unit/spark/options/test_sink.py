"""Options of the sink."""

import pytest

from tandemq.errors import ConfigError
from tandemq.spark.options import SinkOptions, parse


def sink(**given: str) -> SinkOptions:
    return parse(SinkOptions, {"nameserver": "n:1", **given})


def test_copies_are_an_ack_level() -> None:
    assert sink(copies="majority:durable").copies == "majority:durable"
    with pytest.raises(ConfigError, match="copies: ack level 'most'"):
        sink(copies="most")


def test_a_topic_must_have_a_legal_name() -> None:
    with pytest.raises(ConfigError, match=r"topic: .*bad topic"):
        sink(topic="bad topic")


def test_budgets_have_limits() -> None:
    with pytest.raises(ConfigError, match="deliveryTimeoutMs=0: must be at least 1"):
        sink(deliveryTimeoutMs="0")
