"""Which timer messages the log says were delivered, and which are not to be delivered."""

import asyncio

from tandemq.broker.services.timer_copies import (
    OUT_MS,
    READ_BATCH,
    RECALLED,
    ROLL_TIMES,
    DeliveredCopies,
    Superseded,
    rolled,
)
from tandemq.model.message import REAL_QUEUE_ID, REAL_TOPIC, UNIQUE_KEY, StoredMessage
from tandemq.model.topic import TIMER_TOPIC
from tandemq.testing.broker_parts import BrokerParts


def waiting(parts: BrokerParts, body: bytes, **more: str) -> None:
    properties = {UNIQUE_KEY: body.decode(), OUT_MS: "5000", REAL_TOPIC: "T", REAL_QUEUE_ID: "1", **more}
    parts.send(TIMER_TOPIC, body, 0, **properties)


async def sought(parts: BrokerParts) -> list[int]:
    """The queue offsets of those that were delivered."""
    await parts.settle()
    copies = DeliveredCopies(parts.store)
    for message in parts.read(TIMER_TOPIC):
        copies.ask(message, 0)
    found: list[int] = []
    while (some := copies.step()) is not None:
        found += some
    assert copies.found == len(found)
    return sorted(found)


def test_a_copy_is_known_by_its_key_its_time_its_birth_and_its_body() -> None:
    async def story() -> None:
        parts = BrokerParts()
        for name in (b"a", b"b", b"c", b"d"):
            waiting(parts, name)
        parts.send("T", b"a", 1, **{UNIQUE_KEY: "a", OUT_MS: "5000"})
        parts.send("T", b"b", 1, **{UNIQUE_KEY: "b", OUT_MS: "6000"})
        parts.send("T", b"other", 1, **{UNIQUE_KEY: "c", OUT_MS: "5000"})
        parts.send("T", b"d", 0, **{UNIQUE_KEY: "d", OUT_MS: "5000"})
        assert await sought(parts) == [0]

    asyncio.run(story())


def test_a_message_before_the_original_is_no_copy() -> None:
    async def story() -> None:
        parts = BrokerParts()
        parts.send("T", b"a", 1, **{UNIQUE_KEY: "a", OUT_MS: "5000"})
        waiting(parts, b"a")
        assert await sought(parts) == []

    asyncio.run(story())


def test_a_long_queue_is_looked_at_in_pieces() -> None:
    async def story() -> None:
        parts = BrokerParts()
        waiting(parts, b"a")
        for _ in range(2 * READ_BATCH):
            parts.send("T", b"x", 1)
        parts.send("T", b"a", 1, **{UNIQUE_KEY: "a", OUT_MS: "5000"})
        assert await sought(parts) == [0]

    asyncio.run(story())


def test_what_can_not_be_delivered_is_not_sought() -> None:
    async def story() -> None:
        parts = BrokerParts()
        waiting(parts, b"a", **{REAL_QUEUE_ID: "x"})
        assert await sought(parts) == []

    asyncio.run(story())


def messages(*given: tuple[bytes, dict[str, str]]) -> list[StoredMessage]:
    async def story() -> list[StoredMessage]:
        parts = BrokerParts()
        for body, more in given:
            waiting(parts, body, **more)
        await parts.settle()
        return parts.read(TIMER_TOPIC)

    return asyncio.run(story())


def test_the_newest_of_those_that_were_appended_again_counts() -> None:
    first, second, third = messages((b"a", {}), (b"a", {ROLL_TIMES: "1"}), (b"a", {ROLL_TIMES: "2"}))
    superseded = Superseded()
    for message in (first, second, third):
        superseded.note(message)
    assert [superseded.holds(message) for message in (first, second, third)] == [True, True, False]


def test_a_recalled_message_and_its_marker_are_held_back_whichever_way_it_is_named() -> None:
    for name in ("a", "T+a"):
        message, marker, other = messages((b"a", {}), (b"m", {RECALLED: name}), (b"b", {}))
        superseded = Superseded()
        for one in (message, marker, other):
            superseded.note(one)
        assert [superseded.holds(one) for one in (message, marker, other)] == [True, True, False]
        assert not superseded.holds(message), "the marker's time has passed"


def test_each_time_it_is_appended_again_is_counted() -> None:
    assert rolled({})[ROLL_TIMES] == "1"
    assert rolled(rolled({"a": "b"})) == {"a": "b", ROLL_TIMES: "2"}
