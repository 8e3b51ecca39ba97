"""Orders: one at a time, meant for this epoch, not too late, and repeated without harm."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.pair.parts import GROUP, HERE, OTHER, FakeCore, FakeMaster, register_of

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.orders import Orders
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.errors import ReplicationError
from tandemq.replication.metadata import PairCode


class Parts:
    def __init__(self, core: FakeCore) -> None:
        self.core = core
        self.began: list[str] = []
        self.heard: list[dict[str, str]] = []
        self.go = asyncio.Event()
        any_core: Any = core
        rivals: Any = SimpleNamespace(heard=self._heard)
        promotion: Any = SimpleNamespace(promote=self._promote)
        handing_over: Any = SimpleNamespace(step_down=self._step_down)
        facts: Any = SimpleNamespace(detail=lambda: {"role": "slave"})
        self.orders = Orders(any_core, rivals, promotion, handing_over, facts)

    async def _heard(self, ext: dict[str, str]) -> None:
        self.heard.append(ext)

    async def _promote(self, role: BrokerRole, accept_loss: bool) -> str:
        self.began.append(f"promote {role.value} {accept_loss}")
        await self.go.wait()
        return "is the master"

    async def _step_down(self, slave_id: int) -> str:
        self.began.append(f"demote {slave_id}")
        return "steps down"

    async def ask(self, code: int, **ext: str) -> Command:
        connection: Any = None
        found: Any = self.orders.handlers()[code](connection, Command(code, ext))
        data = await found if asyncio.iscoroutine(found) else found
        [frame] = FrameReader(1 << 20).feed(data)
        return decode_command(frame)


def test_an_order_repeated_joins_the_one_under_way_and_another_is_refused() -> None:
    async def scenario() -> None:
        parts = Parts(FakeCore())
        first = asyncio.create_task(parts.orders.promote(BrokerRole.SYNC_MASTER, accept_loss=False))
        again = asyncio.create_task(parts.orders.promote(BrokerRole.SYNC_MASTER, accept_loss=False))
        await asyncio.sleep(0)
        with pytest.raises(ReplicationError, match=r"busy with another order \(promote\)"):
            await parts.orders.demote()
        first.cancel()  # who gave it has gone: it goes on
        parts.go.set()
        assert await again == "is the master"
        assert parts.began == ["promote SYNC_MASTER False"]
        assert await parts.orders.demote(3) == "steps down"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("ext", "match"),
    [({"expiresAt": "1"}, r"expired \d+ ms ago"), ({"epoch": "2"}, "means epoch 2, the group is in epoch 3 now")],
)
@pytest.mark.parametrize("code", [PairCode.PROMOTE, PairCode.DEMOTE, PairCode.FORGET, PairCode.PAUSE])
def test_an_order_of_yesterday_is_not_carried_out(ext: dict[str, str], match: str, code: int) -> None:
    parts = Parts(FakeCore())
    parts.core.node.note(register=register_of())
    with pytest.raises(ReplicationError, match=match):
        asyncio.run(parts.ask(code, **ext))
    assert parts.began == []


def test_requests_reach_the_parts() -> None:
    async def scenario() -> None:
        parts = Parts(FakeCore())
        parts.go.set()
        reply = await parts.ask(PairCode.PROMOTE, role="ASYNC_MASTER", force="true")
        assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, "is the master")
        await parts.ask(PairCode.DEMOTE, brokerId="2")
        assert parts.began == ["promote ASYNC_MASTER True", "demote 2"]
        assert (await parts.ask(PairCode.HA_DETAIL)).body == b'{"role":"slave"}'
        await parts.ask(PairCode.ANNOUNCE, masterAddress=OTHER, tandemqGroup=GROUP)
        assert (await parts.ask(PairCode.ANNOUNCE, tandemqGroup="another")).remark == "another group"
        assert len(parts.heard) == 1

    asyncio.run(scenario())


def test_pausing_and_moving_need_a_coordinator() -> None:
    parts = Parts(FakeCore())
    for code in (PairCode.PAUSE, PairCode.MOVE_REGISTER):
        with pytest.raises(ReplicationError, match="coordinator"):
            asyncio.run(parts.ask(code))


def test_a_replica_is_forgotten_by_its_identity_or_an_address_that_names_one() -> None:
    core = FakeCore(BrokerRole.SYNC_MASTER)
    core.node.master = FakeMaster()
    core.node.note(register=register_of(holder=f"{HERE}#a"))
    parts = Parts(core)
    for name in (f"{OTHER}#b", OTHER):
        reply = asyncio.run(parts.ask(PairCode.FORGET, replica=name))
        assert reply.remark == f"the group has forgotten {OTHER}#b"
    with pytest.raises(ReplicationError, match="is not in the register; known are"):
        asyncio.run(parts.ask(PairCode.FORGET, replica="10.9.9.9:1"))
    assert core.node.master.forgotten == [f"{OTHER}#b"] * 2


def test_a_slave_names_whom_to_ask() -> None:
    core = FakeCore()
    core.node.note(register=register_of())
    with pytest.raises(ReplicationError, match=f"ask {OTHER}#b"):
        asyncio.run(Parts(core).ask(PairCode.FORGET, replica=OTHER))
