"""What other brokers ask."""

from tests.unit.broker.handlers.admin_story import AdminStory, run_story

from tandemq.testing.broker_parts import ADDRESS


def test_what_other_brokers_ask() -> None:
    """Delay offsets with unquoted keys, timer checkpoint, empty tables, HA info by role."""

    async def story(s: AdminStory) -> None:
        assert b'"offsetTable":{}' in bytes((await s.reply(45)).body)
        assert len((await s.reply(60)).body) == 56
        assert (await s.json(61))["timingCount"] == {}
        assert await s.json(402) == {"messageRequestModeMap": {}}
        assert await s.json(907) == {"master": True}
        assert (await s.reply(905, minBrokerId="1")).code == 0
        told = (await s.reply(906)).ext
        assert told == {
            "masterHaAddress": "10.0.0.1:10912", "masterFlushOffset": "7", "masterAddress": ADDRESS, "ours": "1",
        }  # fmt: skip
        await s.reply(906, masterHaAddress="x:1", masterAddress="x:2")
        assert s.announced == []
        s.slave = True
        await s.reply(906, masterHaAddress="x:1", masterAddress="x:2")
        assert s.announced == [("x:1", "x:2")]
        assert (await s.reply(906)).ext == {"ours": "1"}
        assert (await s.reply(908, masterFlushOffset="9")).code == 0

    run_story(story)
