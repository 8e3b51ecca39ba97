"""The log decides which topics there are and how far a group can have come."""

import asyncio
import logging

import pytest

from tandemq.broker.log_agreement import LogAgreement
from tandemq.testing.broker_parts import BrokerParts


def agreement_of(parts: BrokerParts) -> LogAgreement:
    return LogAgreement(parts.store, parts.topics, parts.offsets, parts.stats)


def test_an_offset_beyond_the_end_of_its_queue_is_taken_back_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        parts = BrokerParts()
        parts.topic("T")
        parts.send("T")
        await parts.settle()
        parts.offsets.commit("ahead", "T", 0, 9)
        parts.offsets.commit("right", "T", 0, 1)
        with caplog.at_level(logging.WARNING):
            agreement_of(parts).restore()
        assert parts.offsets.query("ahead", "T", 0) == parts.offsets.query("right", "T", 0) == 1
        assert "ahead on T-0" in caplog.text
        assert "right" not in caplog.text

    asyncio.run(story())


def test_a_topic_that_only_the_log_knows_is_taken_in() -> None:
    async def story() -> None:
        parts = BrokerParts()
        parts.send("unknown", queue_id=3)
        await parts.settle()
        agreement_of(parts).restore()
        found = parts.topics.get("unknown")
        assert found is not None
        assert found.read_queues == 4

    asyncio.run(story())


def test_a_deletion_that_the_log_tells_of_takes_the_offsets_along() -> None:
    """On a slave nobody asks for the deletion: it comes with the log."""

    async def story() -> None:
        parts = BrokerParts()
        parts.topic("T")
        parts.send("T")
        await parts.settle()
        parts.offsets.commit("g", "T", 0, 1)
        agreement_of(parts).begin()
        assert parts.store.on_topic_deleted is not None
        parts.store.on_topic_deleted("T")
        assert parts.offsets.query("g", "T", 0) == -1

    asyncio.run(story())
