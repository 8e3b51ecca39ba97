"""Half messages from END_TRANSACTION to discard, on a memory disk."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tandemq.broker.handlers.transactions import TransactionHandlers
from tandemq.broker.services.half_check import CheckLimits
from tandemq.broker.services.transactions import TransactionService
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.formats.envelope import to_half
from tandemq.formats.record import parse_record
from tandemq.model.topic import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tandemq.store.message_store import Appended
from tandemq.testing.broker_parts import HOST, BrokerParts, FakeConnection, decoded

COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"


class Story:
    def __init__(self, parts: BrokerParts | None = None, check_max: int = 15) -> None:
        self.parts = parts or BrokerParts()
        self.connection = FakeConnection()
        self.service = self._service(check_max)
        self.handlers = TransactionHandlers(
            self.parts.live, self.parts.store, self.parts.writer, self.service, self.parts.stats, self.parts.clock,
            is_slave=lambda: False,
        )  # fmt: skip

    def _service(self, check_max: int) -> TransactionService:
        parts = self.parts
        return TransactionService(
            parts.store, parts.writer, parts.offsets, parts.members, parts.clock,
            limits=lambda: CheckLimits(6000, check_max, 72 * 3_600_000),
            interval_ms=lambda: 60_000,
            store_host=HOST,
            broker_name="broker-a",
            ensure_topic=lambda topic: parts.topics.create_internal(topic, 1),
        )  # fmt: skip

    def half(self, body: bytes, **properties: str) -> Appended:
        topic, queue_id, _, wrapped = to_half(
            "T", 1, 4, {"PGROUP": "pg", "TRAN_MSG": "true", "UNIQ_KEY": body.decode(), **properties}
        )
        return self.parts.send(topic, body, queue_id, **wrapped)

    def end(self, half: Appended, decision: str, *, check: bool = False, group: str = "pg") -> int | None:
        ext = {
            "producerGroup": group,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": decision,
            "fromTransactionCheck": "true" if check else "false",
        }
        reply = self.handlers.end(self.connection, Command(37, ext))  # type: ignore[arg-type]
        return None if reply is None else decoded(reply)[0].code

    async def check(self) -> None:
        await self.service.check()
        await self.parts.settle()
        self.parts.store.flush_once()
        self.service.save_progress()

    def producer(self) -> None:
        self.parts.members.register_producer("pg", self.connection, "client", "JAVA", 407, 0.0)  # type: ignore[arg-type]

    def progress(self) -> tuple[int, int]:
        query = self.parts.offsets.query
        return query(TRANS_GROUP, TRANS_HALF_TOPIC, 0), query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0)

    def bodies(self, topic: str = "T", queue_id: int = 1) -> list[bytes]:
        return [message.body for message in self.parts.read(topic, queue_id)]


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_commit_delivers_and_rollback_does_not() -> None:
    """A commit has the real topic, the commit type and the half's offset; both leave an op record."""

    async def story() -> None:
        s = Story()
        yes, no = s.half(b"yes"), s.half(b"no")
        assert s.end(yes, COMMIT) == 0
        assert s.end(no, ROLLBACK) == 0
        await s.parts.settle()
        (message,) = s.parts.read("T", 1)
        assert message.body == b"yes"
        assert message.sys_flag & 0xC == 8
        assert message.prepared_transaction_offset == yes.physical_offset
        assert s.bodies(TRANS_OP_HALF_TOPIC, 0) == [b"0,1,"]
        await s.check()
        assert s.progress() == (2, 1)

    run(story)


def test_an_unknown_answer_is_not_answered() -> None:
    """Upstream sends no response for it, and decides nothing."""

    async def story() -> None:
        s = Story()
        assert s.end(s.half(b"x"), UNKNOWN) is None
        await s.parts.settle()
        assert s.bodies() == []

    run(story)


def test_a_repeated_commit_delivers_once() -> None:
    """A client that answers twice, in the same turn or later, makes no second copy."""

    async def story() -> None:
        s = Story()
        half = s.half(b"once")
        assert s.end(half, COMMIT) == s.end(half, COMMIT) == 0
        await s.parts.settle()
        await s.service._read_ops()
        assert s.end(half, COMMIT) == 0
        await s.parts.settle()
        assert s.bodies() == [b"once"]

    run(story)


@pytest.mark.parametrize("wrong", ["group", "queue offset", "offset", "no half"])
def test_what_does_not_fit_is_refused(wrong: str) -> None:
    """Only the group that sent the half, with its offsets, decides about it."""

    async def story() -> None:
        s = Story()
        half = s.half(b"x")
        other = s.parts.send("T", b"plain")
        await s.parts.settle()
        changed = {
            "queue offset": half._replace(queue_offset=7),
            "offset": half._replace(physical_offset=half.physical_offset + 1),
            "no half": half._replace(physical_offset=other.physical_offset),
        }.get(wrong, half)
        with pytest.raises(ReplyError) as caught:
            s.end(changed, COMMIT, group="other" if wrong == "group" else "pg")
        assert caught.value.code == 1

    run(story)


def test_old_halves_are_asked_about_until_they_are_discarded() -> None:
    """Each question appends the half again with one more check; after the last it lies in the discard topic."""

    async def story() -> None:
        s = Story(check_max=2)
        s.producer()
        s.half(b"lost")
        await s.parts.settle()
        await s.check()
        assert s.connection.sent == []
        for times in (1, 2):
            s.parts.clock.advance(7)
            await s.check()
            question = s.connection.sent[-1]
            record = parse_record(question.body)
            assert (question.code, question.is_oneway, record.topic, record.queue_id) == (39, True, "T", 1)
            assert record.properties["TRANSACTION_CHECK_TIMES"] == str(times)
            assert question.ext["tranStateTableOffset"] == str(times)
            assert question.ext["transactionId"] == "lost"
        s.parts.clock.advance(7)
        await s.check()
        assert len(s.connection.sent) == 2
        assert s.bodies(TRANS_CHECK_MAX_TIME_TOPIC, 0) == [b"lost"]
        assert s.progress()[0] == 3

    run(story)


def test_the_answer_to_a_question_settles_it() -> None:
    """The client answers with the offsets of the question."""

    async def story() -> None:
        s = Story()
        s.producer()
        s.half(b"asked")
        await s.parts.settle()
        s.parts.clock.advance(7)
        await s.check()
        ext = s.connection.sent[0].ext
        again = Appended(int(ext["commitLogOffset"]), 0, int(ext["tranStateTableOffset"]), 0)
        assert s.end(again, COMMIT, check=True) == 0
        await s.parts.settle()
        s.parts.clock.advance(7)
        await s.check()
        assert s.bodies() == [b"asked"]
        assert len(s.connection.sent) == 1
        assert s.progress() == (2, 1)

    run(story)


def test_a_late_answer_about_the_first_offset_counts() -> None:
    """The half was appended again while the answer was under way: one delivery, no question, also after a restart."""

    async def story() -> None:
        s = Story()
        s.producer()
        first = s.half(b"late")
        await s.parts.settle()
        s.parts.clock.advance(7)
        await s.check()
        restarted = Story(s.parts)
        restarted.producer()
        restarted.service.start()
        assert restarted.end(first, COMMIT) == 0
        await s.parts.settle()
        s.parts.clock.advance(7)
        await restarted.check()
        assert s.bodies() == [b"late"]
        assert restarted.connection.sent == []
        assert s.progress() == (2, 1)
        await restarted.service.stop()

    run(story)


def test_an_answer_and_the_next_question_cross() -> None:
    """The producer answers under the first offset while the half is asked about under the next: it is told once."""

    async def story() -> None:
        s = Story()
        s.producer()
        first = s.half(b"x")
        await s.parts.settle()
        s.parts.clock.advance(7)
        await s.check()
        (question,) = s.connection.sent
        place = {key: int(question.ext[key]) for key in ("tranStateTableOffset", "commitLogOffset")}
        second = first._replace(queue_offset=place["tranStateTableOffset"], physical_offset=place["commitLogOffset"])
        assert s.end(first, COMMIT, check=True) == 0
        assert s.end(second, COMMIT, check=True) == 0, "in the same turn"
        await s.parts.settle()
        assert s.end(second, COMMIT, check=True) == 0, "before the op record is read"
        await s.check()
        await s.check()
        assert s.end(second, COMMIT, check=True) == 0, "after it was settled"
        assert s.end(first, COMMIT, check=True) == 0
        await s.parts.settle()
        assert s.bodies() == [b"x"]

    run(story)


def test_immunity_delays_questions_and_closes_the_door_after() -> None:
    """CHECK_IMMUNITY_TIME_IN_SECONDS: no question before it is over; an unasked answer after it is 604."""

    async def story() -> None:
        s = Story()
        s.producer()
        half = s.half(b"later", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        await s.parts.settle()
        s.parts.clock.advance(30)
        await s.check()
        assert s.connection.sent == []
        s.parts.clock.advance(31)
        assert s.end(half, COMMIT) == 604
        await s.check()
        assert s.connection.sent[0].code == 39

    run(story)


def test_a_committed_half_with_a_delay_waits_for_its_time() -> None:
    """A transactional message may be delayed too: it goes to the schedule topic on commit."""

    async def story() -> None:
        s = Story()
        assert s.end(s.half(b"x", DELAY="3"), COMMIT) == 0
        await s.parts.settle()
        assert s.bodies() == []
        assert s.bodies("SCHEDULE_TOPIC_XXXX", 2) == [b"x"]

    run(story)


def test_upstreams_op_records_are_read() -> None:
    """4.x writes one offset a record, 5.x several with a trailing comma."""

    async def story() -> None:
        s = Story()
        for n in range(3):
            s.half(b"%d" % n)
        s.parts.send(TRANS_OP_HALF_TOPIC, b"0", TAGS="d")
        s.parts.send(TRANS_OP_HALF_TOPIC, b"2,1,", TAGS="d")
        s.parts.send(TRANS_OP_HALF_TOPIC, b"nonsense", TAGS="d")
        await s.parts.settle()
        s.parts.clock.advance(100)
        await s.check()
        assert s.progress() == (3, 3)

    run(story)


def test_a_slave_refuses() -> None:
    """SLAVE_NOT_AVAILABLE, as upstream's slave answers."""

    async def story() -> None:
        s = Story()
        s.handlers._is_slave = lambda: True
        assert s.end(s.half(b"x"), COMMIT) == 11

    run(story)


def test_a_discarded_half_gets_a_second_chance() -> None:
    """RESUME_CHECK_HALF_MESSAGE puts it back with no check counted; anything else is refused."""

    async def story() -> None:
        s = Story(check_max=1)
        s.producer()
        s.half(b"x")
        await s.parts.settle()
        for _ in range(2):
            s.parts.clock.advance(7)
            await s.check()
        (discarded,) = s.parts.read(TRANS_CHECK_MAX_TIME_TOPIC)
        reply = s.handlers.resume(s.connection, Command(323, {"msgId": discarded.message_id}))  # type: ignore[arg-type]
        assert decoded(reply)[0].code == 0
        await s.parts.settle()
        s.parts.clock.advance(7)
        await s.check()
        assert len(s.connection.sent) == 2
        for wrong in (s.parts.read(TRANS_HALF_TOPIC)[0].message_id, "nonsense"):
            with pytest.raises(ReplyError):
                s.handlers.resume(s.connection, Command(323, {"msgId": wrong}))  # type: ignore[arg-type]

    run(story)
