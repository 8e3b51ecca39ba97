"""The replicated group under every fault: 200 seeds hold, a seed replays exactly, and broken rules are noticed."""

import os
import time

import pytest

from tandemq.testing.mutants import MUTANTS, Mutant
from tandemq.testing.simulator import simulate

pytestmark = pytest.mark.exhaustive

SEEDS = int(os.environ.get("TANDEMQ_SIM_SEEDS", "200"))
SEEDS_QUICK = 12


def assert_holds(seeds: range) -> None:
    broken = [result.summary for result in map(simulate, seeds) if result.violation]
    assert not broken, "\n".join(broken) + "\nreplay with: tandemq sim --seed N --trace"


def test_a_few_seeds_keep_every_promise() -> None:
    assert_holds(range(SEEDS_QUICK))


@pytest.mark.slow
def test_all_seeds_keep_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    seeds, began = range(SEEDS_QUICK, SEEDS), time.process_time()
    assert_holds(seeds)
    rate = len(seeds) / (time.process_time() - began) * 60
    with capsys.disabled():
        print(f"[simulator: {len(seeds)} seeds, {rate:.0f} a minute of processor time]", end=" ")


def test_a_seed_replays_event_for_event() -> None:
    first, second = simulate(3, trace=True), simulate(3, trace=True)
    assert first.trace == second.trace
    assert first.summary == second.summary
    assert first.acknowledged > 0


def test_every_safety_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS} >= set("1234567")
    assert len(MUTANTS) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_noticed_within_200_seeds(mutant: Mutant) -> None:
    assert mutant.seed < 200
    with mutant.active():
        assert any(simulate(seed).violation for seed in (mutant.seed, *range(200))), f"not noticed: {mutant.breaks}"
