"""The endpoint for scrapers answers what it knows and nothing else."""

import asyncio
from collections.abc import Iterator

import pytest

from tandemq.errors import ConfigError
from tandemq.remoting.metrics_http import SLICE_SECONDS, MetricsEndpoint
from tandemq.sim.clock import ManualClock


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /metrics HTTP/1.1", b"200", b"up 1\n"),
        (b"GET /metrics?x=1 HTTP/1.1", b"200", b"up 1\n"),
        (b"HEAD /metrics HTTP/1.1", b"200", b""),
        (b"GET /health HTTP/1.1", b"200", b"ok\n"),
        (b"GET / HTTP/1.1", b"404", b"try /metrics\n"),
        (b"POST /metrics HTTP/1.1", b"405", b"GET only\n"),
    ],
)
def test_answers(request_line: bytes, status: bytes, body: bytes) -> None:
    async def story() -> bytes:
        async with MetricsEndpoint(lambda: ["up ", "1\n"]) as endpoint:
            return await ask(await endpoint.start("127.0.0.1", 0), request_line + b"\r\n\r\n")

    head, _, rest = asyncio.run(story()).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert rest == body


def test_a_taken_port_is_the_operators_to_change() -> None:
    async def story() -> None:
        async with MetricsEndpoint(list) as first, MetricsEndpoint(list) as second:
            port = await first.start("127.0.0.1", 0)
            await second.start("127.0.0.1", port)

    with pytest.raises(ConfigError, match="metricsPort="):
        asyncio.run(story())


def test_silent_connections_keep_no_scraper_out() -> None:
    async def story() -> bytes:
        async with MetricsEndpoint(lambda: ["up 1\n"]) as endpoint:
            port = await endpoint.start("127.0.0.1", 0)
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(80)]
            answer = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
            for _, writer in silent:
                writer.close()
            return answer

    assert asyncio.run(story()).endswith(b"up 1\n")


def test_many_who_ask_at_once_cost_one_text() -> None:
    rendered = 0

    def render() -> Iterator[str]:
        nonlocal rendered
        rendered += 1
        clock.advance(1.0)
        for number in range(100):
            clock.advance(1.0)
            yield f"line {number}\n"

    clock = ManualClock()

    async def story() -> list[bytes]:
        async with MetricsEndpoint(render, clock) as endpoint:
            port = await endpoint.start("127.0.0.1", 0)
            links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for _, writer in links:
                writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            return [await reader.read() for reader, _ in links]

    answers = asyncio.run(story())
    assert {answer.count(b"line ") for answer in answers} == {100}
    assert rendered < 10


def test_a_long_text_is_made_in_slices() -> None:
    """Others run on the loop while it is made."""
    clock = ManualClock()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def render() -> Iterator[str]:
        for _ in range(10):
            clock.advance(SLICE_SECONDS)
            yield f"turn {turns}\n"

    async def story() -> bytes:
        async with MetricsEndpoint(render, clock) as endpoint:
            port = await endpoint.start("127.0.0.1", 0)
            counting = asyncio.get_running_loop().create_task(count_turns())
            answer = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")
            counting.cancel()
            return answer

    lines = asyncio.run(story()).partition(b"\r\n\r\n")[2].splitlines()
    assert len(set(lines)) == 10
