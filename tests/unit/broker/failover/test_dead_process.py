"""How it is known that a process is dead."""

import asyncio

from tandemq.broker.addresses import free_port
from tandemq.broker.failover.dead_process import is_refused

HOST = "127.0.0.1"


def test_a_port_nobody_listens_on_is_refused_and_one_that_hangs_is_not() -> None:
    async def story() -> None:
        port = free_port(HOST)
        assert await is_refused(HOST, port)
        server = await asyncio.start_server(lambda reader, writer: None, HOST, port)
        async with server:
            assert not await is_refused(HOST, port)

    asyncio.run(story())
