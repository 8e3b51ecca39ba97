"""Fixtures for pytest: a broker for a whole test run, and a topic for each test.

pytest finds this plugin by itself where TandemQ is installed.

    def test_an_order_is_announced(tandemq_broker, tandemq_topic):
        with sync.Producer("shop", namesrv=tandemq_broker.namesrv) as producer:
            producer.send(Message(topic=tandemq_topic, body=b"paid"))
        assert [message.body for message in tandemq_broker.messages(tandemq_topic)] == [b"paid"]

The broker is started by the first test that asks for it. A `conftest.py` may set its options:

    @pytest.fixture(scope="session")
    def tandemq_properties():
        return {"messageDelayLevel": "1s 1s 1s 1s"}  # failed messages come back after a second

The module itself imports nothing of TandemQ: whoever does not use the fixtures pays nothing for them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tandemq.testing.local_broker import LocalBroker


@pytest.fixture(scope="session")
def tandemq_properties() -> dict[str, str]:
    """Returns broker options of the test run, under RocketMQ's names; override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def tandemq_broker(tandemq_properties: dict[str, str]) -> "Iterator[LocalBroker]":
    """Yields a `tandemq.testing.local_broker.LocalBroker` for all tests of the run."""
    from tandemq.testing.local_broker import LocalBroker

    with LocalBroker(properties=tandemq_properties) as broker:
        yield broker


@pytest.fixture
def tandemq_topic(tandemq_broker: "LocalBroker") -> str:
    """Returns the name of a topic with four queues that no other test uses."""
    return tandemq_broker.create_topic()
