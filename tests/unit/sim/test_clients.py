"""What a producer decides about its transactions."""

from tandemq.model.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tandemq.sim.clients import Half


def test_a_local_transaction_runs_only_after_its_half_was_acknowledged() -> None:
    half = Half(b"1 ", commits=True)
    assert half.decision == TRANSACTION_ROLLBACK
    half.is_known = True
    assert half.decision == TRANSACTION_COMMIT
    assert Half(b"2 ", commits=False, is_known=True).decision == TRANSACTION_ROLLBACK
