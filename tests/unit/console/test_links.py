"""Orders leave by the account of who gives them; the group's key is for clusters without accounts."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tandemq.client.config import ClientConfig
from tandemq.clock import SystemClock
from tandemq.console.links import Links

CONFIG = ClientConfig(namesrv="127.0.0.1:1")
KEYED = replace(CONFIG, access_key="the key's account", secret_key="proof")


@pytest.mark.parametrize(
    ("keyed", "refusal", "by_key"), [(KEYED, "", True), (KEYED, "access refused", False), (None, "", False)]
)
def test_the_groups_key_proves_orders_only_where_there_are_no_accounts(
    keyed: ClientConfig | None, refusal: str, by_key: bool
) -> None:
    async def story() -> None:
        links = Links(CONFIG, SystemClock(), keyed)
        watch: Any = links.open.watch
        watch.snapshot = replace(watch.snapshot, refusal=refusal)
        async with links.for_orders(links.open) as session:
            assert (session is not links.open.session) == by_key
            assert session.config.access_key == ("the key's account" if by_key else "")
        await links.close()

    asyncio.run(story())
