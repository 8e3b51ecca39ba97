"""Questions about connected clients, and questions handed on to one of them."""

from tests.unit.broker.handlers.admin_story import AdminStory, run_story

from tandemq.codec.command import Command
from tandemq.errors import RequestTimeout


def test_connections() -> None:
    """Who is connected; 206 for an absent consumer group, 1 for an absent producer group."""

    async def story(s: AdminStory) -> None:
        assert await s.refusal(203, consumerGroup="g") == 206
        assert await s.refusal(204, producerGroup="p") == 1
        s.connect()
        s.parts.members.register_producer("p", s.admin, "client-2", "GO", 317, s.parts.clock.monotonic() - 2)  # type: ignore[arg-type]
        found = await s.json(203, consumerGroup="g")
        assert found["connectionSet"] == [
            {"clientAddr": s.consumer.peer, "clientId": "client-1", "language": "JAVA", "version": 407}
        ]
        assert found["subscriptionTable"]["T"]["subString"] == "A"
        assert (await s.json(204, producerGroup="p"))["connectionSet"][0]["clientId"] == "client-2"
        (producer,) = (await s.json(328))["data"]["p"]
        assert producer["lastUpdateTimestamp"] == s.parts.clock.wall_ms() - 2000

    run_story(story)


def test_questions_are_handed_to_the_client() -> None:
    """307 and 309 reach the client's connection and its answer comes back; silence and absence have codes."""

    async def story(s: AdminStory) -> None:
        assert await s.refusal(307, consumerGroup="g", clientId="client-1") == 1
        s.connect()
        s.consumer.answers += [Command(0, {"x": "y"}, b"{}"), Command(0), RequestTimeout("silent")]
        reply = await s.reply(307, consumerGroup="g", clientId="client-1", jstackEnable="false")
        assert (reply.code, reply.ext["x"], bytes(reply.body)) == (0, "y", b"{}")
        message_id = s.parts.read("T")[0].message_id
        assert (await s.reply(309, consumerGroup="g", clientId="client-1", msgId=message_id, topic="T")).code == 0
        assert s.consumer.invoked[1].ext["brokerName"] == "broker-a"
        assert len(s.consumer.invoked[1].body) == s.parts.read("T")[0].size
        assert await s.refusal(307, consumerGroup="g", clientId="client-1") == 207
        assert await s.refusal(309, consumerGroup="g", clientId="client-1", msgId="nonsense") == 1
        s.consumer.answers.append(Command(0, {}, b'{"messageQueueTable":{}}'))
        assert await s.json(223, group="g", topic="T") == {"consumerTable": {"client-1": {}}}

    run_story(story)
