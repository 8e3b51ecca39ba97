"""Which half messages are settled, and up to where the op queue is used up."""

from tandemq.broker.services.half_ledger import HalfLedger


def test_ops_are_used_up_in_order() -> None:
    """The op offset stops at the first op record that names a half which is not settled."""
    ledger = HalfLedger()
    ledger.op_read(0, [0])
    ledger.op_read(1, [2, 3])
    ledger.op_read(2, [1])
    assert (ledger.half_offset, ledger.op_offset, ledger.op_next) == (0, 0, 3)
    for half in (0, 1, 2):
        assert ledger.is_decided(half)
        ledger.settle(half)
    assert (ledger.half_offset, ledger.op_offset) == (3, 1)
    ledger.settle(3)
    assert ledger.op_offset == 3
    assert len(ledger) == 0


def test_a_late_answer_settles_the_renewed_half() -> None:
    """The producer answers about the first offset after the half was appended again: no second question, no copy."""
    ledger = HalfLedger()
    ledger.renew(0, 5)
    ledger.half_offset = 1
    ledger.renew(1, 6)
    assert not ledger.is_decided(5)
    ledger.op_read(0, [0])
    assert ledger.is_decided(0)
    assert ledger.is_decided(5)
    assert not ledger.is_decided(6)


def test_a_chain_of_renewals_is_forgotten_when_settled() -> None:
    """Memory holds only halves that wait."""
    ledger = HalfLedger()
    ledger.renew(0, 1)
    ledger.renew(1, 2)
    assert ledger.newest(0) == 2
    ledger.op_read(0, [2])
    ledger.settle(2)
    assert ledger.newest(0) == 0
    assert ledger.op_offset == 1


def test_after_a_restart_renewed_halves_are_recognised() -> None:
    """The property TRAN_PREPARED_QUEUE_OFFSET links copies; older copies still in range are passed over."""
    ledger = HalfLedger(half_offset=3, op_offset=0)
    ledger.seen_renewed(1, 3)
    ledger.seen_renewed(1, 7)
    ledger.op_read(0, [1])
    assert ledger.is_decided(7)
    assert ledger.pass_superseded()
    assert ledger.half_offset == 4
    assert not ledger.pass_superseded()


def test_gone_history_is_skipped() -> None:
    """Retention took halves and ops: what is left is consistent."""
    ledger = HalfLedger()
    ledger.op_read(0, [1, 8])
    ledger.skip_to(5)
    assert ledger.half_offset == 5
    assert ledger.op_offset == 0
    ledger.half_offset = 8
    ledger.settle(8)
    assert ledger.op_offset == 1
    ledger.skip_ops(9)
    assert ledger.op_offset == 9


def test_an_answer_counts_before_its_op_record_is_read_and_under_every_offset() -> None:
    ledger = HalfLedger()
    ledger.renew(0, 5)
    ledger.answered(0)
    assert ledger.is_answered(0)
    assert ledger.is_answered(5)
    assert not ledger.is_decided(5), "check rounds go by what the log says"
    ledger.seen_renewed(0, 7)
    assert ledger.is_answered(5)
    assert ledger.is_answered(7)
    ledger.take_back(5)
    assert not ledger.is_answered(7)
    ledger.answered(7)
    ledger.op_read(0, [5])
    assert ledger.is_decided(7)
    assert not ledger._answered


def test_what_was_settled_is_answered_but_not_what_was_discarded_or_came_before_the_start() -> None:
    ledger = HalfLedger(10)
    ledger.op_read(0, [10])
    ledger.settle(10)
    ledger.discard(11)
    assert [ledger.is_answered(half) for half in (9, 10, 11, 12)] == [False, True, False, False]
