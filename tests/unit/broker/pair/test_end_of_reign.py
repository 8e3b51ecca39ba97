"""A broker whose reign has ended takes no message from that moment on, before anything else is done about it."""

from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.broker.pair.pair import Pair
from tandemq.broker.write_gate import WriteGate, WriteRefused


@pytest.mark.parametrize("deposed", [True, False])
def test_the_writer_refuses_in_the_same_turn(deposed: bool) -> None:
    spawned: list[str] = []

    def spawn(work: Any, name: str) -> None:
        work.close()
        spawned.append(name)

    async def forbid_writes(text: str) -> None: ...

    pair: Any = Pair.__new__(Pair)
    pair.tables = SimpleNamespace(true_at=0)
    pair._spawn = spawn
    pair.failover = None
    pair._broker = SimpleNamespace(
        store=SimpleNamespace(appended=700),
        writer=SimpleNamespace(gate=WriteGate()),
        forwarder=SimpleNamespace(expect_hand_over=lambda: None),
        forbid_writes=forbid_writes,
    )
    pair._closed("another reigns", deposed)
    assert isinstance(pair._broker.writer.gate.refusal, WriteRefused)
    assert "another reigns" in pair._broker.writer.gate.refusal.remark
    assert spawned == ["step aside" if deposed else "forbid writes"], "the rest goes on by itself"
    assert pair.tables.true_at == 700
