"""Mutants are looked for seed by seed, and one that nobody notices is told."""

import pytest

from tandemq.sim import mutation
from tandemq.sim.mutants import MUTANTS


def test_there_are_mutants_enough_and_their_names_differ() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 45


def test_a_mutant_that_is_noticed_and_one_that_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutation.main(["--seeds", "1", "slave-shows-unconfirmed"]) == 0
    assert "0 not noticed" in capsys.readouterr().out
    assert mutation.main(["--seeds", "0", "slave-shows-unconfirmed"]) == 1
    assert "1 not noticed: slave-shows-unconfirmed" in capsys.readouterr().out
