"""A broker that runs tells what an order needs: its clock and the group's epoch."""

import asyncio

import pytest
from tests.console.conftest import Live

from tandemq.client.config import ClientConfig
from tandemq.client.orders import meant_now
from tandemq.client.session import Session

pytestmark = pytest.mark.slow


def test_an_order_to_a_live_broker_expires_and_is_meant_for_its_epoch(live: Live) -> None:
    async def ask(address: str) -> dict[str, str]:
        async with Session(ClientConfig(namesrv=live.namesrv)) as session:
            return await meant_now(session, address)

    for node in live.cluster.plan.brokers:
        assert asyncio.run(ask(node.address)).keys() == {"expiresAt", "epoch"}
