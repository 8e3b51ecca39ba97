"""The debug switch that names what holds the loop."""

import asyncio
import logging
import sys
import threading

import pytest

from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.server import RemotingServer
from tandemq.remoting.turn_log import TurnLog, running_functions


def test_the_function_that_holds_the_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tandemq.remoting")
    seen = threading.Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.set()

    async def main() -> TurnLog:
        watch = TurnLog(0.005)
        watch.start(asyncio.get_running_loop())
        logging.getLogger("tandemq.remoting").addHandler(handler)

        def dawdle() -> None:
            assert seen.wait(30), "nobody noticed"

        dawdle()
        await asyncio.sleep(0)
        watch.stop()
        return watch

    handler = Handler()
    try:
        watch = asyncio.run(main())
    finally:
        logging.getLogger("tandemq.remoting").removeHandler(handler)
    assert watch.logged >= 1
    assert "dawdle (test_turn_log.py:" in caplog.text


def test_a_stack_is_told_innermost_first() -> None:
    text = running_functions(sys._getframe())
    assert text.startswith("test_a_stack_is_told_innermost_first (test_turn_log.py:")
    assert running_functions(None) == "nobody knows"


def test_a_server_watches_its_turns_only_if_it_is_told_to() -> None:
    async def threads(millis: int) -> int:
        server = RemotingServer(RemotingConfig(bind_address="127.0.0.1", turn_log_ms=millis), {})
        await server.listen(0)
        found = sum(thread.name == "tandemq-turns" for thread in threading.enumerate())
        await server.stop()
        return found

    assert asyncio.run(threads(0)) == 0
    assert asyncio.run(threads(50)) == 1
    assert not any(thread.name == "tandemq-turns" for thread in threading.enumerate())
