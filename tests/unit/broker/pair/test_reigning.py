"""A broker whose reign has ended takes no message from that moment on, before anything else is done about it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.broker.pair.reigning import BACK_SECONDS, Reigning
from tandemq.broker.write_gate import WriteGate, WriteRefused
from tandemq.codec.ha_register import Register


def core_of(broker: Any, **rest: Any) -> Any:
    return SimpleNamespace(broker=broker, tables=SimpleNamespace(true_at=0), failover=None, predecessor="", **rest)


@pytest.mark.parametrize("deposed", [True, False])
def test_the_writer_refuses_in_the_same_turn(deposed: bool) -> None:
    spawned: list[str] = []

    def spawn(work: Any, name: str) -> None:
        work.close()
        spawned.append(name)

    async def forbid_writes(text: str) -> None: ...

    async def step_aside() -> None: ...

    broker: Any = SimpleNamespace(
        store=SimpleNamespace(appended=700),
        writer=SimpleNamespace(gate=WriteGate()),
        forwarder=SimpleNamespace(expect_hand_over=lambda: None),
        forbid_writes=forbid_writes,
    )
    core = core_of(broker, spawn=spawn)
    rivals: Any = None
    roles: Any = SimpleNamespace(step_aside=step_aside)
    Reigning(core, rivals, roles).closed("another reigns", deposed)
    refusal = broker.writer.gate.refusal
    assert isinstance(refusal, WriteRefused)
    assert "another reigns" in refusal.remark
    assert spawned == ["step aside" if deposed else "forbid writes"], "the rest goes on by itself"
    assert core.tables.true_at == 700


class Standing:
    """A master that has just opened, whose former master comes back when asked for the third time."""

    def __init__(self, comes_back: bool) -> None:
        self.asked, self._comes_back, self.now = 0, comes_back, 0.0
        self.is_open = True
        self.register: Register | None = None

    def status(self) -> Any:
        self.asked += 1
        self.now += 0.1
        in_sync = self._comes_back and self.asked > 2
        return SimpleNamespace(replicas=[SimpleNamespace(replica="former", in_sync=in_sync)])


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_successor_waits_for_the_copies_that_sends_will_want_but_not_for_long(comes_back: bool) -> None:
    node = Standing(comes_back)
    allowed: list[float] = []

    async def announce() -> None: ...

    broker: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic=lambda: node.now),
        writer=SimpleNamespace(level=SimpleNamespace(copies=2)),
        allow_writes=lambda: allowed.append(node.now),
        registration=SimpleNamespace(announce=lambda: None),
    )
    core = core_of(broker, node=node, spawn=lambda work, name: work.close())
    core.predecessor = "former"
    nobody: Any = None
    asyncio.run(Reigning(core, SimpleNamespace(announce=announce), nobody)._open_broker())  # type: ignore[arg-type]
    assert allowed, "it opens whether or not they come"
    assert (allowed[0] < BACK_SECONDS) == comes_back
    assert core.predecessor == "", "they are waited for once"
