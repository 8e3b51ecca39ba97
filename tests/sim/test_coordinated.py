"""A group whose register lives in etcd, under every fault: seeds hold, replay exactly, and found what they found."""

import pytest
from tests.sim.replay import outputs_of

from tandemq.sim.coordinated import simulate_coordinated

pytestmark = pytest.mark.exhaustive


def test_a_few_seeds_keep_every_promise() -> None:
    broken = [result.summary for result in map(simulate_coordinated, range(10)) if result.violation]
    assert not broken, "\n".join(broken) + "\nreplay with: tandemq sim --etcd --seed N --trace"


@pytest.mark.parametrize("seed", [13, 51])
def test_nobody_opens_without_the_coordinators_word(seed: int) -> None:
    """A master that asked again opened as soon as the others had stored its former register, without asking etcd."""
    assert not simulate_coordinated(seed).violation


def test_no_swap_leaves_while_a_reign_rests_on_its_members_word() -> None:
    """A member joined the in-sync set by a swap of which its master, alone and cut off from etcd, heard nothing."""
    assert not simulate_coordinated(100132).violation


def test_a_reign_that_has_ended_holds_up_no_swap_by_the_words_it_rested_on() -> None:
    """A master that had gone on by its members' word met a higher number, asked again, and never opened."""
    assert not simulate_coordinated(102428).violation


def test_an_order_that_accepts_a_loss_deposes_nobody_for_a_store_without_a_name() -> None:
    """Two stores were ordered to reign; the one that no register names asked the other, which reigned, to step down."""
    assert not simulate_coordinated(100416).violation


def test_services_beside_slow_disks_let_a_calm_group_converge() -> None:
    """A delivery came before the one before it was on every disk, for ever: the two ends were never equal."""
    assert not simulate_coordinated(100721).violation


REPLAY = """
import hashlib, logging
from tandemq.sim.coordinated import simulate_coordinated
logging.disable()
for seed in (3, 5):
    result = simulate_coordinated(seed, trace=True)
    assert result.acknowledged
    print(hashlib.sha256("\\n".join([*result.trace, result.summary]).encode()).hexdigest())
"""


def test_a_seed_replays_in_any_process() -> None:
    first, second = outputs_of(REPLAY)
    assert first
    assert first == second
