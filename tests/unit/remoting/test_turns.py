"""The longest turn of the loop is shown for a while, with what ran in it."""

import asyncio

from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.remoting.access.needs import needs
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection
from tandemq.remoting.server import RemotingServer
from tandemq.remoting.turns import OTHER_WORK, WINDOW_SECONDS, LoopTurns, Turn
from tandemq.sim.clock import ManualClock

PULL, BEAT = RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT


def test_the_longest_is_kept_and_named() -> None:
    turns = LoopTurns(ManualClock().monotonic)
    for code, seconds in ((PULL, 0.01), (BEAT, 0.2), (PULL, 0.05)):
        turns.ran(code, seconds)
    assert turns.longest() == Turn(0.2, "HEART_BEAT")


def test_what_a_request_explains_is_not_other_work() -> None:
    turns = LoopTurns(ManualClock().monotonic)
    turns.ran(BEAT, 0.2)
    turns.was_late(0.19)
    assert turns.longest().what == "HEART_BEAT"
    turns.was_late(0.5)
    assert turns.longest() == Turn(0.5, OTHER_WORK)


def test_a_turn_is_forgotten_after_two_windows() -> None:
    clock = ManualClock()
    turns = LoopTurns(clock.monotonic)
    turns.ran(BEAT, 0.2)
    clock.advance(WINDOW_SECONDS)
    assert turns.longest().seconds == 0.2
    clock.advance(WINDOW_SECONDS)
    assert turns.longest().seconds == 0.0
    turns.was_late(0.0)
    turns.ran(PULL, 0.1)
    assert turns.longest().what == "PULL_MESSAGE"


def test_a_server_times_its_requests_and_watches_its_loop() -> None:
    @needs()
    def handler(connection: Connection, command: Command) -> Command:
        return Command(0, {})

    async def main() -> None:
        server = RemotingServer(RemotingConfig(bind_address="127.0.0.1"), {BEAT: handler})
        port = await server.listen(0)
        assert server.turns._timer is not None
        async with RemotingClient(RemotingConfig()) as client:
            await client.invoke(f"127.0.0.1:{port}", Command(BEAT, {}), 10)
        turn = server.status().longest_turn
        await server.stop()
        assert server.turns._timer is None
        assert turn.seconds > 0
        assert turn.what in ("HEART_BEAT", OTHER_WORK)

    asyncio.run(main())
