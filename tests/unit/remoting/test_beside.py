"""Work beside the loop: one piece at a time, its errors are its caller's."""

import asyncio
import threading

import pytest

from tandemq.remoting.beside import Beside


def test_pieces_run_one_after_the_other_and_not_on_the_loop() -> None:
    async def main() -> None:
        beside, running, seen = Beside(), threading.Lock(), list[str]()

        def work(number: int, *, factor: int) -> int:
            assert running.acquire(blocking=False)
            seen.append(threading.current_thread().name)
            running.release()
            return number * factor

        assert await asyncio.gather(*(beside(work, number, factor=2) for number in range(20))) == list(range(0, 40, 2))
        assert threading.current_thread().name not in seen

    asyncio.run(main())


def test_an_error_ends_its_piece_alone() -> None:
    async def main() -> None:
        beside = Beside()
        with pytest.raises(ValueError, match="invalid literal"):
            await beside(int, "x")
        assert await beside(int, "7") == 7

    asyncio.run(main())
