"""Answers of request-reply, handed to who asked."""

import asyncio

import pytest

from tandemq.broker.handlers.reply import ReplyHandlers
from tandemq.codec.command import Command
from tandemq.errors import ReplyError, RequestTimeout
from tandemq.model.message import decode_properties
from tandemq.testing.broker_parts import ADDRESS, HOST, BrokerParts, FakeConnection, decoded


class Reply:
    def __init__(self, **options: object) -> None:
        self.parts = BrokerParts(**options)
        p = self.parts
        self.replier, self.asker = FakeConnection(), FakeConnection("10.0.0.8:1234")
        self.handlers = ReplyHandlers(p.live, p.writer, p.topics, p.members, p.clock, store_host=HOST, address=ADDRESS)

    def connect_asker(self) -> None:
        self.parts.members.register_producer("pg", self.asker, "client-1", "JAVA", 407, 0.0)  # type: ignore[arg-type]

    async def send(self, **changed: str) -> Command:
        ext = {
            "a": "replier", "b": "DefaultCluster_REPLY_TOPIC", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "7",
            "h": "0", "i": "REPLY_TO_CLIENT\x01client-1\x02CORRELATION_ID\x01c1\x02",
        }  # fmt: skip
        task = self.handlers.send_reply(self.replier, Command(325, {**ext, **changed}, b"answer"))  # type: ignore[arg-type]
        return decoded(await task)[0]


def test_an_answer_is_pushed_and_stored() -> None:
    """The asker gets 326 with everything a message has; the replier gets where it was stored."""

    async def story() -> None:
        s = Reply()
        s.connect_asker()
        s.asker.answers.append(Command(0))
        reply = await s.send()
        assert reply.code == 0
        (push,) = s.asker.invoked
        assert (push.code, bytes(push.body)) == (326, b"answer")
        assert (push.ext["bornHost"], push.ext["storeHost"]) == (s.replier.peer, ADDRESS)
        properties = decode_properties(push.ext["properties"].encode())
        assert properties["CORRELATION_ID"] == "c1"
        assert properties["PUSH_REPLY_TIME"] == push.ext["storeTimestamp"]
        await s.parts.settle()
        (stored,) = s.parts.read("DefaultCluster_REPLY_TOPIC")
        assert reply.ext["msgId"] == stored.message_id
        assert reply.ext["queueOffset"] == "0"

    asyncio.run(story())


def test_an_answer_for_nobody_is_told_and_still_stored() -> None:
    """Code 1 with the reason, as upstream."""

    async def story() -> None:
        s = Reply()
        reply = await s.send()
        assert reply.code == 1
        assert "client-1" in (reply.remark or "")
        await s.parts.settle()
        assert len(s.parts.read("DefaultCluster_REPLY_TOPIC")) == 1

    asyncio.run(story())


def test_a_silent_asker_does_not_hang_the_broker() -> None:
    """The push has a deadline; without storing, msgId is 0."""

    async def story() -> None:
        s = Reply(store_reply_message_enable=False)
        s.connect_asker()
        s.asker.answers.append(RequestTimeout("no answer"))
        reply = await s.send()
        assert (reply.code, reply.ext["msgId"]) == (1, "0")
        assert s.parts.read("DefaultCluster_REPLY_TOPIC") == []

    asyncio.run(story())


def test_path_like_topics_are_refused() -> None:
    """A reply is a send: its topic goes through the same grammar."""

    async def story() -> None:
        s = Reply()
        with pytest.raises(ReplyError):
            await s.send(b="../../etc/passwd")
        with pytest.raises(ReplyError):
            await s.send(e="99")

    asyncio.run(story())
