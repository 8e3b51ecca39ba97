"""Room for sends in flight: bounded by count and bytes, first come, first served."""

import asyncio

import pytest
from tests.unit.client.fake_cluster import on_loop, turns

from tandemq.client.send_room import SendRoom
from tandemq.errors import ClientClosed


def start(room: SendRoom, size: int) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(room.enter(size))


@on_loop
async def test_the_count_is_bounded_and_nobody_overtakes() -> None:
    room = SendRoom(2, 1 << 20)
    tasks = [start(room, 1) for _ in range(5)]
    await turns(3)
    assert (room.count, room.waiting) == (2, 3)
    assert not room.try_enter(1)
    room.leave(1)
    await turns(3)
    assert [task.done() for task in tasks] == [True, True, True, False, False]


@on_loop
async def test_bytes_are_bounded_and_a_large_send_is_not_starved() -> None:
    room = SendRoom(100, 100)
    assert room.try_enter(60)
    large, small = start(room, 60), start(room, 1)
    await turns(3)
    assert (large.done(), small.done()) == (False, False)
    room.leave(60)
    await turns(3)
    assert (large.done(), small.done()) == (True, True)


@on_loop
async def test_what_is_larger_than_the_room_goes_alone() -> None:
    room = SendRoom(10, 100)
    assert room.try_enter(1000)
    assert not room.try_enter(1)
    room.leave(1000)
    assert room.try_enter(1)


@on_loop
async def test_whoever_is_cancelled_leaves_the_line() -> None:
    room = SendRoom(1, 100)
    assert room.try_enter(1)
    first, second = start(room, 1), start(room, 1)
    await turns(3)
    first.cancel()
    await turns(3)
    room.leave(1)
    await turns(3)
    assert second.done()
    assert (room.count, room.waiting) == (1, 0)


@on_loop
async def test_a_cancellation_in_the_moment_of_entry_gives_the_room_back() -> None:
    room = SendRoom(1, 100)
    assert room.try_enter(1)
    first = start(room, 1)
    await turns(3)
    room.leave(1)  # gives the room to the first, which has not run yet
    first.cancel()
    await turns(3)
    assert room.count == 0
    assert room.try_enter(1)


@on_loop
async def test_a_closed_room_lets_nobody_in_and_empties() -> None:
    room = SendRoom(1, 100)
    async with room.place(1):
        waiting = start(room, 1)
        emptied = asyncio.get_running_loop().create_task(room.empty())
        await turns(3)
        room.close("the producer was closed")
        await turns(3)
        with pytest.raises(ClientClosed, match="was closed"):
            waiting.result()
        with pytest.raises(ClientClosed):
            await room.enter(1)
        assert not emptied.done()
    await turns(3)
    assert emptied.done()
    assert not room.try_enter(1)


@on_loop
async def test_all_but_the_first_of_a_turn_go_on_in_the_next() -> None:
    """Whoever starts thousands of sends in one turn of the loop: their deadlines begin when it can send again."""
    room = SendRoom(100, 1 << 20)
    log: list[str] = []

    async def sends(name: str) -> None:
        await room.enter(1)
        log.append(name)

    asyncio.get_running_loop().call_soon(log.append, "begun")
    tasks = [asyncio.get_running_loop().create_task(sends(name)) for name in ("first", "second", "third")]
    asyncio.get_running_loop().call_soon(log.append, "all are started")
    await asyncio.gather(*tasks)
    assert log == ["begun", "first", "all are started", "second", "third"]
    await sends("alone")
    assert room.count == 4


@on_loop
async def test_a_cancellation_while_others_start_gives_the_room_back() -> None:
    room = SendRoom(100, 1 << 20)
    first, second = start(room, 1), start(room, 1)
    await asyncio.sleep(0)
    second.cancel()
    await turns(3)
    assert first.done()
    assert room.count == 1
