"""Offsets moved or copied by an administrator."""

import pytest
from tests.unit.broker.handlers.admin_story import AdminStory, queue_of_t, run_story

from tandemq.codec import bodies


def test_reset_by_time_and_by_offset() -> None:
    """The new offsets are noted, parked pulls woken, and the table answered with queues as keys."""

    async def story(s: AdminStory) -> None:
        stored = [m.store_timestamp for m in s.parts.read("T")]
        found = await s.json(222, topic="T", group="g", timestamp=str(stored[1]), isForce="true")
        assert bodies.queue_table_of(found["offsetTable"]) == {queue_of_t(0): 1, queue_of_t(1): 1}
        assert s.parts.offsets.take_reset("g", "T", 0) == 1
        assert s.woken == [("T", 0), ("T", 1)]
        found = await s.json(222, topic="T", group="g", timestamp="-1", isForce="true")
        assert bodies.queue_table_of(found["offsetTable"]) == {queue_of_t(0): 3, queue_of_t(1): 2}
        found = await s.json(222, topic="T", group="g", timestamp="-1", isForce="true", queueId="1", offset="1")
        assert bodies.queue_table_of(found["offsetTable"]) == {queue_of_t(1): 1}
        assert await s.refusal(222, topic="T", group="g", timestamp="-1", queueId="1", offset="99") == 1
        assert await s.refusal(222, topic="none", group="g", timestamp="-1") == 17
        assert await s.refusal(222, topic="T", group="none", timestamp="-1") == 26
        s.slave = True
        assert await s.refusal(222, topic="T", group="g", timestamp="-1") == 1

    run_story(story)


@pytest.mark.parametrize(
    ("language", "version", "start"),
    [("JAVA", 407, b'{"offsetTable":{{'), ("CPP", 63, b'{"offsetTable":[{'), ("JAVA", 479, None)],
)
def test_older_clients_are_told_of_a_reset_in_their_form(language: str, version: int, start: bytes | None) -> None:
    """C++ reads a list, others queues as keys; 5.x needs no push."""

    async def story(s: AdminStory) -> None:
        s.connect(language, version)
        await s.reply(222, topic="T", group="g", timestamp="-1", isForce="true")
        assert [bytes(c.body[: len(start or b"")]) for c in s.consumer.sent] == ([] if start is None else [start])
        assert all((c.code, c.ext["group"]) == (220, "g") for c in s.consumer.sent)

    run_story(story)


def test_cloning_offsets() -> None:
    """The target group starts where the source is."""

    async def story(s: AdminStory) -> None:
        assert (await s.reply(314, srcGroup="g", destGroup="copy", topic="T", offline="true")).code == 0
        assert s.parts.offsets.query("copy", "T", 0) == 2
        assert "copy" in s.parts.groups

    run_story(story)
