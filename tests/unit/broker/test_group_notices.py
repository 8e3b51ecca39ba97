"""Notices of changed groups: merged, encoded once, in slices. Work is counted, not timed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tandemq.broker import group_notices
from tandemq.broker.group_notices import SLICE, GroupNotices
from tandemq.testing.waiting import until


class Link:
    """A member's connection that counts."""

    def __init__(self) -> None:
        self.is_open = True
        self.frames: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.frames.append(data)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_a_thousand_joins_are_not_half_a_million_notices() -> None:
    async def story() -> None:
        links: list[Link] = []
        notices = GroupNotices(lambda _: links)  # type: ignore[arg-type, return-value]
        for _ in range(1000):
            links.append(Link())
            notices.changed(["g"])
        await until(lambda: not notices._is_armed, "every notice")
        assert sum(len(link.frames) for link in links) <= 1001
        assert all(link.frames for link in links), "everybody learns of the last change"

    run(story)


def test_the_first_change_of_each_group_is_told_at_once() -> None:
    async def story() -> None:
        links = {"a": Link(), "b": Link()}
        notices = GroupNotices(lambda group: [links[group]])  # type: ignore[list-item]
        notices.changed(["a"])
        notices.changed(["b"])
        assert [len(link.frames) for link in links.values()] == [1, 1]
        assert b"consumerGroup" in links["a"].frames[0]
        await until(lambda: not notices._is_armed, "the pause")
        notices.changed(["a"])
        assert len(links["a"].frames) == 2

    run(story)


def test_a_large_group_is_told_in_slices_and_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []
    encode = group_notices.encode_request
    monkeypatch.setattr(group_notices, "encode_request", lambda command: encoded.append(command) or encode(command))

    async def story() -> None:
        links = [Link() for _ in range(3 * SLICE + 1)]
        links[5].is_open = False
        notices = GroupNotices(lambda _: links)  # type: ignore[arg-type, return-value]
        notices.changed(["g"])
        assert sum(len(link.frames) for link in links) == SLICE - 1
        await until(lambda: bool(links[-1].frames), "the last slice")
        assert sum(len(link.frames) for link in links) == 3 * SLICE
        assert len(encoded) == 1

    run(story)


def test_thousands_of_groups_that_changed_are_told_in_slices() -> None:
    async def story() -> None:
        link = Link()
        notices = GroupNotices(lambda _: [link])  # type: ignore[arg-type, return-value, list-item]
        groups = [f"g{number}" for number in range(3 * SLICE + 1)]
        notices.changed(groups)
        notices.changed(groups)
        link.frames.clear()
        notices._pause_over()  # a slice is told, the others follow in the next turns
        assert len(link.frames) == SLICE
        notices.changed(groups[-1:])
        assert len(link.frames) == SLICE, "it waits for its turn, and is told again after the next pause"
        await until(lambda: not notices._is_armed and not notices._due, "every notice")
        assert len(link.frames) == len(groups) + 1

    run(story)


def test_a_large_group_is_told_when_others_have_joined_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_notices, "LARGE", 10)
    monkeypatch.setattr(group_notices, "MEMBERS_PER_PAUSE", 5)

    async def story() -> None:
        links = [Link() for _ in range(10)]
        notices = GroupNotices(lambda _: links)  # type: ignore[arg-type, return-value]
        for _ in range(3):
            notices.changed(["g"])
        assert not links[0].frames
        await until(lambda: bool(links[0].frames), "the notice of all three")
        assert notices._resting == {"g": 2}, "ten members rest for two pauses"
        await until(lambda: not notices._is_armed, "the end of the rest")
        assert [len(link.frames) for link in links] == [1] * 10

    run(story)
