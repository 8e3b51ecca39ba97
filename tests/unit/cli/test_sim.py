"""`tandemq sim`: interrupted, it tells of the seeds that it has run."""

import json
import logging
import os
import signal
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from tandemq.cli import sim
from tandemq.sim.world import SimulationResult


def test_an_interrupt_ends_the_run_after_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to arrive in the middle of a seed: a traceback, or a seed that was called broken."""
    begun: list[int] = []

    def simulate(seed: int, *, trace: bool) -> SimulationResult:
        begun.append(seed)
        if seed == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return SimulationResult(seed, 2, "2", steps=Random(seed).randrange(9))

    monkeypatch.setattr(sim, "simulate", simulate)
    before = signal.getsignal(signal.SIGINT)
    ran = CliRunner().invoke(sim.app, ["--seeds", "1000", "--json"])
    assert ran.exit_code == 0, ran.output
    told: dict[str, Any] = json.loads(ran.output)
    assert begun == [0, 1, 2, 3]
    assert (told["seeds"], told["broken"]) == (4, [])
    assert signal.getsignal(signal.SIGINT) is before


def test_a_mutant_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = CliRunner().invoke(sim.app, ["--mutant", "nonsense"])
    assert ran.exit_code != 0
    assert "known are" in str(ran.exception)


def test_who_runs_it_in_a_process_of_their_own_logs_again_afterwards() -> None:
    assert CliRunner().invoke(sim.app, ["--seed", "1"]).exit_code == 0
    assert logging.getLogger("tandemq").isEnabledFor(logging.WARNING)
