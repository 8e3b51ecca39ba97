"""The lists of transitions at the top of both state machines are what the machines do."""

import ast
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tandemq.replication import following, master_state, mastership, slave_state
from tandemq.replication.following.core import SlaveCore, SlavePhase
from tandemq.replication.mastership.core import MasterCore, Phase
from tandemq.sim.simulator import simulate

pytestmark = pytest.mark.exhaustive

Transition = tuple[str, str]

MACHINES = [
    pytest.param(master_state, MasterCore, Phase, id="master"),
    pytest.param(slave_state, SlaveCore, SlavePhase, id="slave"),
]
SEEDS = range(8)


def drawn(module: ModuleType, phases: type[Enum]) -> Iterator[Transition]:
    """Yields (from, to) for each line of the list; "any state" stands for all others."""
    for before, after in re.findall(r"^ +(\w+|any state) +──▶ (\w+) ", module.__doc__ or "", re.MULTILINE):
        for phase in phases:
            if before in (phase.name, "any state") and phase.name != after:
                yield phase.name, after


def sources(module: ModuleType) -> list[str]:
    """Returns the source of a machine: of its module and of its parts."""
    parts = mastership if module is master_state else following
    assert parts.__file__ is not None
    return [inspect.getsource(module), *(part.read_text() for part in sorted(Path(parts.__file__).parent.glob("*.py")))]


def entered(module: ModuleType, phases: type[Enum]) -> set[str]:
    """Returns the phases that the source enters: `machine.enter(Phase.NAME)`."""
    entered = [
        node.args[0].attr
        for source in sources(module)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "enter"
        and isinstance(node.args[0], ast.Attribute)
        and getattr(node.args[0].value, "id", "") == phases.__name__
    ]
    return set(entered)


@pytest.mark.parametrize(("module", "machine", "phases"), MACHINES)
def test_every_phase_is_drawn_and_can_be_entered(module: ModuleType, machine: type, phases: type[Enum]) -> None:
    """The drawing names each phase that exists, and no other; the code enters what is drawn, and nothing else."""
    transitions = set(drawn(module, phases))
    assert {phase for transition in transitions for phase in transition} == {phase.name for phase in phases}
    assert {after for _, after in transitions} == entered(module, phases)


@pytest.mark.parametrize(("module", "machine", "phases"), MACHINES)
def test_the_simulator_sees_no_other_transition(
    module: ModuleType, machine: type, phases: type[Enum], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[Transition] = set()

    def noted(self: Any, name: str, value: Any) -> None:
        before = getattr(self, "phase", value)
        if name == "phase" and before is not value:
            seen.add((before.name, value.name))
        object.__setattr__(self, name, value)

    monkeypatch.setattr(machine, "__setattr__", noted)
    for seed in SEEDS:
        simulate(seed)
    allowed = set(drawn(module, phases))
    assert seen <= allowed, f"not drawn: {sorted(seen - allowed)}"
    assert len(seen) >= len(phases), f"too few seeds: they show only {sorted(seen)}"
