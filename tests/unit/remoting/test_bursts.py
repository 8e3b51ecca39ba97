"""What thousands of connections send at one instant is served in several turns of the loop."""

import asyncio
from typing import Any

import pytest

from tandemq.codec.command import Command, decode_command, encode_request
from tandemq.remoting.bursts import BURST_SECONDS, PAUSE_SECONDS, Burst
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection
from tandemq.testing.waiting import until


class Loop:
    """A clock and what is to be called in the next turn."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Any) -> None:
        self.soon.append(call)


@pytest.fixture
def loop() -> Any:
    return Loop()


STEP = PAUSE_SECONDS / 2
MANY = round(3 * BURST_SECONDS / STEP)


def test_many_connections_in_one_turn_wait_for_the_next(loop: Any) -> None:
    burst = Burst(loop)
    served = 0
    for _ in range(MANY):
        loop.now += STEP
        served += burst.reads(loop.now, -1)
    assert served == pytest.approx(BURST_SECONDS / STEP, abs=2)
    assert len(loop.soon) == 1
    loop.soon.pop()()
    assert burst.goes_on(loop.now), "a new turn"


def test_a_connection_that_is_read_again_begins_a_turn(loop: Any) -> None:
    burst, turn = Burst(loop), -1
    for _ in range(MANY):
        loop.now += STEP
        assert burst.reads(loop.now, turn)
        turn = burst.turn
    assert loop.soon == []


def test_a_pause_begins_a_turn(loop: Any) -> None:
    burst = Burst(loop)
    for _ in range(MANY):
        loop.now += 2 * PAUSE_SECONDS
        assert burst.reads(loop.now, -1)


class Transport(asyncio.Transport):
    reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5000), "sockname": ("127.0.0.1", 10911)}.get(name)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def test_what_waits_is_served_in_order_and_nothing_is_read_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemq.remoting.bursts.BURST_SECONDS", 0.0)  # no time at all

    async def story() -> None:
        served: list[bytes] = []
        burst = Burst(asyncio.get_running_loop())
        links = []
        for _ in range(3):
            link = Connection(
                RemotingConfig(), lambda _, frame: served.append(bytes(decode_command(frame).body)), burst=burst
            )
            link.connection_made(Transport())
            links.append(link)
        for number, link in enumerate(links):
            link.data_received(encode_request(Command(1, body=b"%d" % number)))
        assert served == []
        assert not any(link._transport.reading for link in links)  # type: ignore[union-attr]
        monkeypatch.undo()
        await until(lambda: len(served) == 3)
        assert served == [b"0", b"1", b"2"]
        assert all(link._transport.reading for link in links)  # type: ignore[union-attr]

    asyncio.run(story())
