"""Heartbeats, goodbyes, member lists, and who is told."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tandemq.broker.handlers.clients import ClientHandlers
from tandemq.codec.command import Command
from tandemq.errors import CodecError, ReplyError
from tandemq.testing.broker_parts import BrokerParts, FakeConnection, decoded
from tandemq.testing.waiting import until


class Story:
    def __init__(self, **options: Any) -> None:
        self.parts = BrokerParts(**options)
        self.handlers = ClientHandlers(
            self.parts.topics, self.parts.groups, self.parts.members, self.parts.live, self.parts.clock
        )

    def heartbeat(self, link: FakeConnection, client: str = "c", *groups: str, **fields: Any) -> dict[str, str]:
        body = {
            "clientID": client,
            "producerDataSet": [{"groupName": "p"}],
            "consumerDataSet": [
                {"groupName": group, "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": "7"}]}
                for group in groups
            ],
            **fields,
        }
        reply = self.handlers.heartbeat(link, Command(34, body=json.dumps(body).encode()))  # type: ignore[arg-type]
        return decoded(reply)[0].ext

    def members(self, group: str = "g") -> list[str]:
        reply = self.handlers.consumer_list(FakeConnection(), Command(38, {"consumerGroup": group}))  # type: ignore[arg-type]
        ids: list[str] = json.loads(bytes(decoded(reply)[0].body))["consumerIdList"]
        return ids


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def told(link: FakeConnection) -> list[dict[str, str]]:
    return [command.ext for command in link.sent if command.code == 40]


async def settled(s: Story) -> None:
    """Until changes that follow each other closely were told."""
    await until(lambda: not s.handlers._notices._is_armed, "every notice")


def test_a_heartbeat_makes_group_retry_topic_and_members() -> None:
    async def story() -> None:
        s = Story()
        s.heartbeat(FakeConnection(), "one", "g")
        s.heartbeat(FakeConnection(), "two", "g")
        assert s.members() == ["one", "two"]
        assert "g" in s.parts.groups
        retry = s.parts.topics.get("%RETRY%g")
        assert retry is not None
        assert (retry.read_queues, retry.perm) == (1, 6)
        assert [member.client_id for member in s.parts.members.producers("p")] == ["one", "two"]

    run(story)


def test_everybody_hears_of_a_newcomer_and_of_a_goodbye() -> None:
    async def story() -> None:
        s = Story()
        first, second = FakeConnection(), FakeConnection()
        s.heartbeat(first, "one", "g")
        await settled(s)
        s.heartbeat(second, "two", "g")
        assert told(first) == [{"consumerGroup": "g"}] * 2
        assert told(second) == [{"consumerGroup": "g"}]
        s.heartbeat(first, "one", "g")
        assert len(told(second)) == 1
        await settled(s)
        unregister = {"clientID": "two", "producerGroup": "", "consumerGroup": "g"}
        s.handlers.unregister(second, Command(35, unregister))  # type: ignore[arg-type]
        assert len(told(first)) == 3
        assert s.members() == ["one"]

    run(story)


def test_nobody_is_told_where_that_was_switched_off_or_makes_no_sense() -> None:
    async def story() -> None:
        s = Story(notify_consumer_ids_changed_enable=False)
        link = FakeConnection()
        s.heartbeat(link, "one", "g")
        assert told(link) == []
        s = Story()
        consumers = [{"groupName": "g", "messageModel": 0, "subscriptionDataSet": None}]  # C++: 0 is BROADCASTING
        s.heartbeat(link, "one", consumerDataSet=consumers)
        assert told(link) == []

    run(story)


def test_silence_ends_a_membership_and_its_connection() -> None:
    async def story() -> None:
        s = Story()
        quiet, lively = FakeConnection(), FakeConnection()
        s.heartbeat(quiet, "quiet", "g")
        s.heartbeat(lively, "lively", "g")
        s.parts.clock.advance(100)
        s.heartbeat(lively, "lively", "g")
        s.parts.clock.advance(100)
        await settled(s)
        before = len(told(lively))
        assert s.handlers.expire()
        assert not s.handlers.expire(), "nothing is left to do"
        assert s.members() == ["lively"]
        assert quiet.closed
        assert not lively.closed
        assert len(told(lively)) == before + 1

    run(story)


def test_a_lost_connection_is_a_goodbye() -> None:
    async def story() -> None:
        s = Story()
        gone, stays = FakeConnection(), FakeConnection()
        s.heartbeat(gone, "gone", "g")
        s.heartbeat(stays, "stays", "g")
        await settled(s)
        s.handlers.dropped(gone)  # type: ignore[arg-type]
        assert s.members() == ["stays"]
        assert len(told(stays)) == 2

    run(story)


def test_a_group_without_members_is_an_error_as_upstream_says_it() -> None:
    async def story() -> None:
        with pytest.raises(ReplyError, match="no consumer for this group, g") as failure:
            Story().members()
        assert failure.value.code == 1

    run(story)


def test_heartbeats_of_the_second_version_leave_known_subscriptions_out() -> None:
    async def story() -> None:
        s = Story()
        link = FakeConnection()
        assert s.heartbeat(link, "c", "g")["IS_SUB_CHANGE"] == "true"
        short = [{"groupName": "g", "subscriptionDataSet": []}]
        unknown = s.heartbeat(link, "c", consumerDataSet=short, heartbeatFingerprint=5, withoutSub=True)
        assert unknown == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        assert s.heartbeat(link, "c", "g", heartbeatFingerprint=5)["IS_SUB_CHANGE"] == "false"
        known = s.heartbeat(link, "c", consumerDataSet=short, heartbeatFingerprint=5, withoutSub=True)
        assert known["IS_SUB_CHANGE"] == "false"
        group = s.parts.members.consumer_group("g")
        assert group is not None
        assert list(group.subscriptions) == ["T"]

    run(story)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"clientID":""}', b'{"clientID":"%s"}' % (b"x" * 1000)])
def test_a_body_that_is_no_heartbeat_is_refused(body: bytes) -> None:
    async def story() -> None:
        with pytest.raises((ReplyError, CodecError)):
            Story().handlers.heartbeat(FakeConnection(), Command(34, body=body))  # type: ignore[arg-type]

    run(story)


@pytest.mark.parametrize(
    ("kind", "expression", "enabled", "code"),
    [("TAG", "*", False, 0), ("SQL92", "a > 1", True, 0), ("SQL92", "a > 1", False, 1), ("SQL92", "a >", True, 23)],
)
def test_a_filter_is_checked_before_a_client_starts(kind: str, expression: str, enabled: bool, code: int) -> None:
    async def story() -> None:
        s = Story(enable_property_filter=enabled)
        wanted = {"topic": "T", "subString": expression, "expressionType": kind}
        body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": wanted}).encode()
        try:
            told = await s.handlers.check_config(FakeConnection(), Command(46, body=body))  # type: ignore[arg-type]
            reply = decoded(told)[0].code
        except ReplyError as error:
            reply = error.code
        assert reply == code

    run(story)
