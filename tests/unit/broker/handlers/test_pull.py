"""Pulls: every check, every status, and waiting."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tandemq.broker.config import BrokerRole
from tandemq.broker.handlers.pull import PullHandlers
from tandemq.broker.subscriptions import parse_subscription
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.formats.record import parse_record, walk
from tandemq.model.topic import SubscriptionGroupConfig, TopicConfig
from tandemq.testing.broker_parts import BrokerParts, FakeConnection
from tandemq.testing.waiting import until

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


class Story:
    def __init__(self, **options: Any) -> None:
        self.parts = BrokerParts(**options)
        self.connection = FakeConnection()
        self.handlers = PullHandlers(
            self.parts.store, self.parts.topics, self.parts.groups, self.parts.offsets, self.parts.members,
            self.parts.live, self.parts.clock, asyncio.get_running_loop(), self.parts.stats,
        )  # fmt: skip
        self.parts.on_arrival = self.handlers.arrived
        self.parts.topic("T")

    def pull(
        self, offset: int = 0, *, flags: int = SUBSCRIPTION, language: str = "JAVA", code: int = 11, **ext: str
    ) -> Command | None:
        fields = {
            "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
            "sysFlag": str(flags), "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "0", **ext,
        }  # fmt: skip
        before = len(self.connection.sent)
        command = Command(code, fields, opaque=9, language=language)
        assert self.handlers.pull(self.connection, command) is None  # type: ignore[arg-type]
        return self.connection.sent[-1] if len(self.connection.sent) > before else None

    async def sent(self, *bodies: bytes, **properties: str) -> None:
        for body in bodies:
            self.parts.send("T", body, **properties)
        await self.parts.settle()

    def register(self, expression: str = "*", *, version: int = 5, model: str = "CLUSTERING") -> None:
        self.parts.members.register_consumer(
            "g", self.connection, "c", "JAVA", 407, 0.0, consume_type="CONSUME_PASSIVELY", message_model=model,
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscriptions=[parse_subscription("T", expression, version=version)],
        )  # type: ignore[arg-type]  # fmt: skip


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def bodies(reply: Command | None) -> list[bytes]:
    assert reply is not None
    data = bytes(reply.body)
    return [parse_record(data, start, start + size).body for start, size, _ in walk(data, 0, len(data))]


def ext(reply: Command | None) -> tuple[int, int, int]:
    """(code, next offset, suggested broker); all four fields must be there, as numbers in text."""
    assert reply is not None
    assert {"maxOffset", "minOffset", "nextBeginOffset", "suggestWhichBrokerId"} <= reply.ext.keys()
    return reply.code, int(reply.ext["nextBeginOffset"]), int(reply.ext["suggestWhichBrokerId"])


def test_records_come_as_they_were_stored() -> None:
    async def story() -> None:
        s = Story()
        await s.sent(b"a", b"b")
        reply = s.pull()
        assert bodies(reply) == [b"a", b"b"]
        assert ext(reply) == (0, 2, 0)
        assert reply is not None
        assert reply.remark == "FOUND"
        assert s.parts.stats.get_flow("T", "g").messages == 2

    run(story)


def test_the_client_says_how_many() -> None:
    async def story() -> None:
        s = Story()
        await s.sent(b"a", b"b", b"c")
        assert ext(s.pull(maxMsgNums="2")) == (0, 2, 0)
        assert bodies(s.pull(maxMsgBytes="1")) == [b"a"]

    run(story)


@pytest.mark.parametrize(
    ("offset", "code", "next_offset", "remark"),
    [
        (0, 0, 3, "FOUND"),
        (3, 19, 3, "OFFSET_OVERFLOW_ONE"),
        (4, 21, 3, "OFFSET_OVERFLOW_BADLY"),
        (10**15, 21, 3, "OFFSET_OVERFLOW_BADLY"),
        (-5, 21, 0, "OFFSET_TOO_SMALL"),
    ],
)
def test_every_offset_has_its_answer(offset: int, code: int, next_offset: int, remark: str) -> None:
    async def story() -> None:
        s = Story()
        await s.sent(b"a", b"b", b"c")
        reply = s.pull(offset)
        assert ext(reply)[:2] == (code, next_offset)
        assert reply is not None
        assert reply.remark == remark

    run(story)


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (7, 21)])
def test_an_empty_queue_sends_the_client_to_its_start(offset: int, code: int) -> None:
    async def story() -> None:
        assert ext(Story().pull(offset))[:2] == (code, 0)

    run(story)


@pytest.mark.parametrize(
    ("change", "request_ext", "code"),
    [
        ("broker_permission", {}, 16),
        ("auto_create", {"consumerGroup": "new"}, 26),
        ("disabled", {}, 16),
        ("", {"topic": "missing"}, 17),
        ("write_only", {}, 16),
        ("", {"queueId": "2"}, 29),
        ("", {"queueId": "-1"}, 29),
        ("", {"subscription": "||"}, 23),
        ("", {"subscription": "a > 1", "expressionType": "SQL92"}, 1),
        ("", {"queueId": "zero"}, 1),
        ("unregistered", {"sysFlag": "0"}, 24),
        ("broadcast", {"sysFlag": "0"}, 16),
        ("forbidden", {"sysFlag": "0"}, 16),
        ("other_topic", {"sysFlag": "0", "topic": "U"}, 24),
    ],
)
def test_a_pull_that_is_not_allowed_is_told_why(change: str, request_ext: dict[str, str], code: int) -> None:
    async def story() -> None:
        s = Story(broker_permission=2 if change == "broker_permission" else 6)
        s.parts.topic("U")
        s.parts.groups.put(
            SubscriptionGroupConfig(
                name="g", consume_enable=change != "disabled", consume_broadcast_enable=change != "broadcast"
            )
        )
        s.parts.groups.auto_create = change != "auto_create"
        if change == "write_only":
            s.parts.topics.put(TopicConfig(name="T", perm=2))
        if change == "forbidden":
            s.parts.groups.set_forbidden("g", "T", 1)
        if change in ("broadcast", "forbidden", "other_topic"):
            s.register(model="BROADCASTING" if change == "broadcast" else "CLUSTERING")
        with pytest.raises(ReplyError) as failure:
            s.pull(**request_ext)
        assert failure.value.code == code

    run(story)


def test_lite_pulls_can_be_switched_off() -> None:
    async def story() -> None:
        s = Story(lite_pull_message_enable=False)
        with pytest.raises(ReplyError) as failure:
            s.pull(code=RequestCode.LITE_PULL_MESSAGE)
        assert failure.value.code == 16

    run(story)


def test_a_refused_cpp_client_is_answered_late() -> None:
    """It repeats a refused pull at once, thousands of times a second."""

    async def story() -> None:
        s = Story(pull_error_delay_ms=1)
        answered = asyncio.Event()
        remember = s.connection.send

        def send(data: bytes) -> None:
            remember(data)
            answered.set()

        s.connection.send = send  # type: ignore[method-assign]
        assert s.pull(topic="missing", language="CPP") is None
        await asyncio.wait_for(answered.wait(), 5)
        assert s.connection.sent[0].code == 17

    run(story)


def test_tags_filter_by_their_code() -> None:
    async def story() -> None:
        s = Story()
        await s.sent(b"a", TAGS="A")
        await s.sent(b"b", TAGS="B")
        await s.sent(b"c", TAGS="C")
        assert bodies(s.pull(subscription="A || C")) == [b"a", b"c"]
        assert ext(s.pull(subscription="X"))[:2] == (20, 3)

    run(story)


def test_sql_filters_by_properties() -> None:
    """Neighbours in the log are separated again."""

    async def story() -> None:
        s = Story(enable_property_filter=True)
        await s.sent(b"one", n="1")
        await s.sent(b"two", n="2")
        await s.sent(b"three", n="3")
        assert bodies(s.pull(subscription="n <> '2'", expressionType="SQL92")) == [b"one", b"three"]
        assert ext(s.pull(subscription="n = '9'", expressionType="SQL92"))[:2] == (20, 3)

    run(story)


def test_a_registered_subscription_is_used_when_the_pull_brings_none() -> None:
    async def story() -> None:
        s = Story()
        s.register("A")
        await s.sent(b"a", TAGS="A")
        await s.sent(b"b", TAGS="B")
        assert bodies(s.pull(flags=0, subVersion="5")) == [b"a"]

    run(story)


def test_a_subscription_newer_than_the_heartbeat_is_left_to_the_client() -> None:
    """Upstream refuses (25) until the next heartbeat, up to 30 s; filtering by the old one could lose messages."""

    async def story() -> None:
        s = Story()
        s.register("A", version=5)
        await s.sent(b"a", TAGS="A")
        await s.sent(b"b", TAGS="B")
        assert bodies(s.pull(flags=0, subVersion="6")) == [b"a", b"b"]

    run(story)


def test_offsets_ride_on_pulls() -> None:
    async def story() -> None:
        s = Story()
        s.pull(flags=SUBSCRIPTION | COMMIT, commitOffset="4")
        assert s.parts.offsets.query("g", "T", 0) == 4
        s.handlers.role = BrokerRole.SLAVE
        s.pull(flags=SUBSCRIPTION | COMMIT, commitOffset="9")
        assert s.parts.offsets.query("g", "T", 0) == 4

    run(story)


def test_a_pull_that_waits_gets_the_message_when_it_comes() -> None:
    async def story() -> None:
        s = Story()
        assert s.pull(flags=SUBSCRIPTION | SUSPEND) is None
        assert len(s.handlers.parked) == 1
        await s.sent(b"now")
        assert bodies(s.connection.sent[-1]) == [b"now"]
        assert len(s.handlers.parked) == 0

    run(story)


def test_a_message_that_does_not_pass_the_filter_wakes_nobody() -> None:
    """What was examined is not examined again, and the deadline's answer says how far that was."""

    async def story() -> None:
        s = Story()
        await s.sent(b"old", TAGS="B")
        s.pull(flags=SUBSCRIPTION | SUSPEND, subscription="A")
        assert ext(s.connection.sent[-1])[:2] == (20, 1), "told at once how far the filter has looked"
        s.pull(1, flags=SUBSCRIPTION | SUSPEND, subscription="A")
        await s.sent(b"b", TAGS="B")
        assert len(s.connection.sent) == 1
        await s.sent(b"a", TAGS="A")
        assert bodies(s.connection.sent[-1]) == [b"a"]
        assert ext(s.connection.sent[-1])[:2] == (0, 3)

        s.pull(3, flags=SUBSCRIPTION | SUSPEND, subscription="A")
        await s.sent(b"b", TAGS="B")
        s.parts.clock.advance(15.0)
        s.handlers._on_timer()
        assert ext(s.connection.sent[-1])[:2] == (20, 4)

    run(story)


def test_the_deadline_is_the_clients() -> None:
    async def story() -> None:
        s = Story()
        s.pull(flags=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis="5000")
        s.parts.clock.advance(4.999)
        s.handlers._on_timer()
        assert s.connection.sent == []
        s.parts.clock.advance(0.002)
        s.handlers._on_timer()
        assert ext(s.connection.sent[-1])[:2] == (19, 0)

    run(story)


def test_no_room_means_an_answer_now() -> None:
    async def story() -> None:
        s = Story(pull_parked_max=1)
        assert s.pull(flags=SUBSCRIPTION | SUSPEND) is None
        assert ext(s.pull(flags=SUBSCRIPTION | SUSPEND, queueId="1"))[0] == 19

    run(story)


def test_a_closed_connection_leaves_nothing_parked() -> None:
    async def story() -> None:
        s = Story()
        s.pull(flags=SUBSCRIPTION | SUSPEND)
        s.handlers.dropped(s.connection)  # type: ignore[arg-type]
        assert len(s.handlers.parked) == 0
        await s.sent(b"late")
        assert s.connection.sent == []

    run(story)


def test_a_reset_reaches_the_pull_that_waits() -> None:
    async def story() -> None:
        s = Story()
        await s.sent(b"a", b"b")
        s.pull(2, flags=SUBSCRIPTION | SUSPEND)
        s.parts.offsets.set_reset("g", "T", 0, 1)
        s.handlers.offset_reset("T", 0)
        assert ext(s.connection.sent[-1])[:2] == (21, 1)

    run(story)


def test_a_slave_that_lags_holds_its_consumer_instead_of_correcting_it() -> None:
    async def story() -> None:
        s = Story()
        s.handlers.role = BrokerRole.SLAVE
        await s.sent(b"a")
        assert ext(s.pull(7)) == (20, 7, 0)
        assert s.pull(7, flags=SUBSCRIPTION | SUSPEND) is None
        assert len(s.handlers.parked) == 1

    run(story)


@pytest.mark.parametrize("shown", [0, 1])
def test_a_master_that_may_not_show_everything_yet_does_not_send_consumers_back(shown: int) -> None:
    """After a crash it waits for its slave; whoever had read further goes on where it was."""

    async def story() -> None:
        s = Story()
        s.parts.store.set_confirmed(0)
        for number, body in enumerate((b"a", b"b", b"c"), 1):
            s.parts.send("T", body)
            if number == shown:
                s.parts.store.set_confirmed(s.parts.store.appended)
        await s.parts.settle()
        assert s.parts.store.reader.queue_range("T", 0)[1] == shown
        assert ext(s.pull(3))[:2] == (19, 3)
        assert s.pull(3, flags=SUBSCRIPTION | SUSPEND) is None
        s.parts.store.set_confirmed(None)
        await s.sent(b"d")
        assert bodies(s.connection.sent[-1]) == [b"d"]
        assert ext(s.pull(9))[:2] == (21, 4), "with everything shown, an offset beyond the end is corrected"

    run(story)


@pytest.mark.parametrize(("ratio", "suggested"), [(1, 1), (95, 0)])
def test_a_consumer_far_behind_is_sent_to_a_slave(ratio: int, suggested: int) -> None:
    async def story() -> None:
        s = Story(slave_read_enable=True, access_message_in_memory_max_ratio=ratio)
        await s.sent(b"a", b"b" * 1000)
        s.handlers._ram = 10_000
        s.handlers.warm_log._chunks[0] = None
        assert ext(s.pull(maxMsgNums="1"))[2] == suggested

    run(story)


def test_what_lies_on_disk_is_read_by_a_worker_first() -> None:
    """The answer is the same, only later; also through a filter."""

    async def story() -> None:
        s = Story(enable_property_filter=True)
        await s.sent(b"one", n="1")
        await s.sent(b"two", n="2")
        s.handlers.warm_log._written_from = 1 << 40
        assert s.pull(subscription="n = '2'", expressionType="SQL92") is None
        await until(lambda: s.connection.sent, "the answer of a worker thread")
        assert bodies(s.connection.sent[-1]) == [b"two"]
        assert bodies(s.pull()) == [b"one", b"two"]
        s.handlers.close()

    run(story)
