"""Automatic failover with real brokers and a real etcd: whatever dies, nothing acknowledged is lost."""

import asyncio
import os
from pathlib import Path

import pytest

from tandemq.testing.etcd import etcd_program
from tandemq.testing.failover_group import FailoverGroup

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.skipif(not etcd_program(), reason="no etcd on this machine: Debian's package is etcd-server"),
]
ROUNDS = int(os.environ.get("TANDEMQ_FAILOVER_ROUNDS", "3"))


def test_a_killed_master_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    """kill -9 of whoever reigns, again and again, under load; it returns as a slave."""

    async def story() -> None:
        async with FailoverGroup(tmp_path) as group:
            master = await group.up()
            load = group.load()
            await load.reached(100)
            for _ in range(ROUNDS):
                master.kill()
                await group.reigning(besides=master)
                await load.reached(len(load.result.acknowledged) + 100)
                master.start()
                master = await group.all_in_sync()
            await group.check_all(await load.stop())

    asyncio.run(story())
