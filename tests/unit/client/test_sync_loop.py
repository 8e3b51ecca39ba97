"""The event loop of clients without one."""

import asyncio
import os
import threading

import pytest

from tandemq.client.sync_loop import ClientLoop, client_loop
from tandemq.errors import ClientError


async def answer() -> int:
    return 7


def test_work_runs_on_one_thread_of_its_own() -> None:
    loop = client_loop()
    assert client_loop() is loop
    assert loop.run(answer()) == loop.start(answer()).result() == 7
    thread = loop.call(threading.current_thread)
    assert (thread.name, thread.daemon) == ("tandemq-client", True)
    assert loop.call(max, 1, 2) == 2


def test_an_error_comes_back() -> None:
    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        client_loop().run(fails())


def test_a_call_inside_a_callback_of_the_loop_is_refused_at_once() -> None:
    loop = client_loop()

    async def inside() -> str:
        with pytest.raises(ClientError, match="would wait for itself"):
            loop.check_outside()
        with pytest.raises(ClientError) as refused:
            loop.run(answer())
        return str(refused.value)

    assert "plain function" in loop.run(inside())


def test_after_a_fork_old_clients_are_refused_and_new_ones_work() -> None:
    loop = client_loop()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # no test framework in here: only the outcome leaves
        try:
            try:
                loop.run(answer())
                outcome = "ran"
            except ClientError as error:
                outcome = "before a fork" if "before a fork" in str(error) else str(error)
            outcome += f", {client_loop().run(answer())}"
            os.write(write, outcome.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        assert said.read() == "before a fork, 7"
    os.waitpid(child, 0)
    assert loop.run(answer()) == 7


def test_clients_that_nobody_closed_are_closed_at_the_end() -> None:
    closed: list[float] = []

    class Client:
        def close_at_exit(self, timeout: float) -> None:
            closed.append(timeout)

    loop = ClientLoop()
    left, ended = Client(), Client()
    loop.opened(left)
    loop.opened(ended)
    loop.closed(ended)
    loop._at_exit()
    assert closed == [5.0]
    asyncio.run_coroutine_threadsafe(answer(), loop._loop).result()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_callback_that_would_end_the_loop_does_not(error: type[BaseException]) -> None:
    loop = ClientLoop()

    def raises() -> None:
        raise error

    loop._loop.call_soon_threadsafe(raises)
    assert loop.start(answer()).result(30) == 7
