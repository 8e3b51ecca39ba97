"""The client's connecting, without sockets: who waits for a connection can always be cancelled."""

import asyncio

import pytest

from tandemq.codec.command import Command
from tandemq.errors import ConnectFailed
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection

TURNS = 8
"""More turns of the loop than any outcome needs from the attempt to whoever waits for it."""


@pytest.mark.parametrize("turns", range(TURNS))
@pytest.mark.parametrize("closes", [False, True], ids=["refused", "closed"])
def test_a_cancelled_request_ends_even_when_its_connection_fails_at_that_moment(
    turns: int, closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that tries again after every failure, as a slave's, would otherwise outlive its stop for ever."""

    async def story() -> None:
        client = RemotingClient(RemotingConfig())
        refused = asyncio.get_running_loop().create_future()

        async def connecting(address: str) -> Connection:
            await refused
            raise ConnectFailed(f"{address}: refused")

        monkeypatch.setattr(client, "_open", connecting)
        asking = asyncio.create_task(client.invoke("10.0.0.1:10911", Command(1), 30))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert client._connecting, "nobody waits for the connection yet"
        if closes:
            closing = asyncio.create_task(client.close())
        else:
            refused.set_result(None)
        for _ in range(turns):
            await asyncio.sleep(0)
        if asking.cancel():
            with pytest.raises(asyncio.CancelledError):
                await asking
        if closes:
            await closing

    asyncio.run(story())
