"""What the parts share: tasks that end with the broker."""

import asyncio
from typing import Any

from tests.unit.broker.pair.parts import FakeBroker, Network

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.core import PairCore


def test_tasks_end_with_the_broker_and_are_forgotten_when_done() -> None:
    async def scenario() -> None:
        broker: Any = FakeBroker(BrokerRole.SLAVE, Network())
        tables: Any = None
        core = PairCore(broker, tables)
        assert core.slave_id == 1, "the file's id is the first wish"

        async def quick() -> str:
            return "done"

        assert await core.spawn(quick(), "quick") == "done"
        endless = core.spawn(asyncio.Event().wait(), "endless")
        core.cancel_all()
        await asyncio.wait([endless])
        assert endless.cancelled()
        await asyncio.sleep(0)
        assert core._tasks == set()

    asyncio.run(scenario())
