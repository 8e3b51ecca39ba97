"""Packing beside the loop: one piece at a time for each session, in log order."""

import asyncio

from tandemq.codec import ha_session as ha
from tandemq.replication.packing import Packing


def test_a_piece_is_there_when_its_session_is_called_again() -> None:
    async def story() -> None:
        packing, called = Packing(), asyncio.Event()
        assert packing.take(1, 100, 500) is None
        packing.begin(asyncio.get_running_loop(), 1, 100, memoryview(b"x" * 400), called.set)
        await asyncio.wait_for(called.wait(), 10)
        assert packing.take(1, 100, 500) == (400, ha.packed(b"x" * 400))
        assert packing.take(1, 100, 500) is None, "it is taken once"

    asyncio.run(story())


def test_a_log_that_grows_meanwhile_does_not_begin_the_piece_anew() -> None:
    async def story() -> None:
        packing, called, loop = Packing(), asyncio.Event(), asyncio.get_running_loop()
        packing.begin(loop, 1, 100, memoryview(b"x" * 400), called.set)
        packing.begin(loop, 1, 100, memoryview(b"x" * 450), lambda: None)
        await asyncio.wait_for(called.wait(), 10)
        assert packing.take(1, 100, 450) == (400, ha.packed(b"x" * 400))

    asyncio.run(story())


def test_nothing_is_left_of_a_session_that_ended() -> None:
    async def story() -> None:
        packing, loop = Packing(), asyncio.get_running_loop()
        calls: list[str] = []
        packing.begin(loop, 1, 100, memoryview(b"x" * 400), lambda: calls.append("ended"))
        packing.forget(1)
        called = asyncio.Event()
        packing.begin(loop, 2, 0, memoryview(b"y"), called.set)
        await asyncio.wait_for(called.wait(), 10)
        await loop.run_in_executor(None, lambda: None)
        assert not calls
        assert packing.take(1, 100, 500) is None

    asyncio.run(story())


def test_a_piece_of_another_place_or_too_large_is_not_taken() -> None:
    async def story() -> None:
        packing, loop = Packing(), asyncio.get_running_loop()
        for offset, size_max in ((200, 500), (100, 399)):
            called = asyncio.Event()
            packing.begin(loop, 1, 100, memoryview(b"x" * 400), called.set)
            await asyncio.wait_for(called.wait(), 10)
            assert packing.take(1, offset, size_max) is None

    asyncio.run(story())
