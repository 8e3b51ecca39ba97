"""Messages that can't be delivered: kept with the reason, whatever their properties are."""

import asyncio

from tandemq.broker.services.undeliverable import REASON, UNDELIVERABLE_TOPIC, Undeliverable
from tandemq.formats.record import PROPERTIES_MAX
from tandemq.model.message import encode_properties
from tandemq.testing.broker_parts import BrokerParts


def test_properties_that_leave_no_room_for_the_reason_are_left_out() -> None:
    async def story() -> None:
        parts = BrokerParts()
        made: list[str] = []
        aside = Undeliverable(parts.writer)
        aside.ensure_topic = made.append
        room = PROPERTIES_MAX - len(encode_properties({"fill": "", "UNIQ_KEY": "u"}))
        parts.send("T", b"body", fill="x" * room, UNIQ_KEY="u")
        await parts.settle()
        (message,) = parts.read("T")
        end = aside.keep(message, "a reason" * 1000)
        await parts.settle()
        (letter,) = parts.read(UNDELIVERABLE_TOPIC)
        assert (letter.body, letter.properties["UNIQ_KEY"], made) == (b"body", "u", [UNDELIVERABLE_TOPIC])
        assert letter.properties[REASON].startswith("a reason")
        assert "fill" not in letter.properties
        assert end == letter.physical_offset + letter.size

    asyncio.run(story())
