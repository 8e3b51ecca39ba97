"""Each broken rule of a group with a coordinator breaks something that is there, and is whole again afterwards."""

import pytest

from tandemq.sim.etcd_mutants import ETCD_MUTANTS
from tandemq.sim.mutants import MUTANTS, Mutant


def test_every_fencing_rule_has_a_mutant() -> None:
    rules = {mutant.rule for mutant in ETCD_MUTANTS}
    assert rules >= {f"etcd: {rule}" for rule in ("lease", "hear", "in sync", "take", "swap", "shrink", "vouch")}
    assert not {mutant.name for mutant in ETCD_MUTANTS} & {mutant.name for mutant in MUTANTS}


@pytest.mark.parametrize("mutant", ETCD_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_active_only_inside(mutant: Mutant) -> None:
    before = [target.__dict__[attribute] for target, attribute, _ in mutant.patches]
    with mutant.active():
        assert [target.__dict__[attribute] for target, attribute, _ in mutant.patches] != before
    assert [target.__dict__[attribute] for target, attribute, _ in mutant.patches] == before
