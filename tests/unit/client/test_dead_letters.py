"""Dead letters are sent again to their own group, once, and without the marks of their first life."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.client import dead_letters
from tandemq.client.dead_letters import DeadLetters
from tandemq.errors import ClientError
from tandemq.model.topic import QueueRef

QUEUE = QueueRef("%DLQ%g", "b", 0)


def letter(offset: int, **properties: str) -> Any:
    stored = SimpleNamespace(body=b"x", sys_flag=0, flag=0)
    origin = properties.get("RETRY_TOPIC", "%DLQ%g")
    return SimpleNamespace(
        queue_offset=offset, topic=origin, properties=properties, stored=stored, message_id=str(offset)
    )


class Scripted(DeadLetters):
    """With letters in memory, and offsets written into a list."""

    def __init__(self, letters: list[Any]) -> None:
        self.letters, self.written, self.first = letters, [], 0

        async def set_offset(group: str, queue: QueueRef, offset: int) -> None:
            self.written.append(offset)

        async def queue_range(queue: QueueRef) -> tuple[int, int]:
            return 0, len(self.letters)

        self._admin: Any = SimpleNamespace(set_offset=set_offset, queue_range=queue_range)
        self._session: Any = None

    async def queues(self, group: str) -> tuple[QueueRef, ...]:
        return (QUEUE,)

    async def progress(self, queue: QueueRef) -> int:
        return self.first

    async def read(self, queue: QueueRef, first: int = 0) -> AsyncIterator[Any]:
        for one in self.letters[first:]:
            yield one


def resent(letters: Scripted, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Any]:
    sent: list[Any] = []

    async def send_once(session: object, group: str, item: Any) -> str:
        sent.append(item)
        return "ok"

    monkeypatch.setattr(dead_letters, "send_once", send_once)

    async def all_of_them() -> None:
        async for _ in letters.resend("g", **options):
            pass

    asyncio.run(all_of_them())
    return sent


def test_they_go_to_the_retry_topic_without_old_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = Scripted([letter(0, RETRY_TOPIC="T", KEYS="k", DELAY="3", RECONSUME_TIME="16", WAIT="false")])
    (item,) = resent(letters, monkeypatch)
    assert item.topic == "%RETRY%g"
    assert item.properties == "RETRY_TOPIC\x01T\x02KEYS\x01k\x02"
    assert letters.written == [1]


def test_they_can_go_to_the_topic_they_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    (item,) = resent(Scripted([letter(0, RETRY_TOPIC="T", KEYS="k")]), monkeypatch, to_topic=True)
    assert (item.topic, item.properties) == ("T", "KEYS\x01k\x02")


def test_progress_stops_at_the_first_that_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = Scripted([letter(number, RETRY_TOPIC="T") for number in range(4)])
    sent = resent(letters, monkeypatch, wanted=lambda message: message.queue_offset != 1)
    assert len(sent) == 3
    assert letters.written == [1]


def test_a_second_time_goes_on_where_the_first_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = Scripted([letter(number, RETRY_TOPIC="T") for number in range(4)])
    letters.first = 3
    assert len(resent(letters, monkeypatch)) == 1
    assert letters.written == [4]
    assert len(resent(letters, monkeypatch, again=True)) == 4
    assert letters.written == [4, 4], "progress never goes back"
    assert len(resent(letters, monkeypatch, again=True, limit=2)) == 2


def test_a_dry_run_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = Scripted([letter(0, RETRY_TOPIC="T")])
    assert resent(letters, monkeypatch, dry_run=True) == []
    assert letters.written == []


def test_one_that_does_not_say_where_it_came_from_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClientError, match="dead letter 0 does not say which topic"):
        resent(Scripted([letter(0)]), monkeypatch)
