"""Which half messages are settled, and what a check round does with the others."""

import pytest

from tandemq.broker.transactions import CheckLimits, HalfLedger, Verdict, verdict
from tandemq.model.message import StoredMessage

LIMITS = CheckLimits(timeout_ms=6000, check_max=15, retention_ms=72 * 3600 * 1000)
NOW = 1_000_000_000


def _half(age_ms: int = 7000, **properties: str) -> StoredMessage:
    return StoredMessage(
        topic="RMQ_SYS_TRANS_HALF_TOPIC", queue_id=0, queue_offset=0, physical_offset=0, size=100, flag=0, sys_flag=0,
        body_crc=0, born_timestamp=NOW - age_ms, born_host=bytes(8), store_timestamp=NOW - max(age_ms, 1),
        store_host=bytes(8), reconsume_times=0, prepared_transaction_offset=0, body=b"", properties=properties,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("half", "expected"),
    [
        (_half(5000), Verdict.LATER),
        (_half(6001), Verdict.ASK),
        (_half(-1), Verdict.ASK),
        (_half(7000, TRANSACTION_CHECK_TIMES="14"), Verdict.ASK),
        (_half(7000, TRANSACTION_CHECK_TIMES="15"), Verdict.DISCARD),
        (_half(73 * 3600 * 1000), Verdict.DISCARD),
        (_half(7000, CHECK_IMMUNITY_TIME_IN_SECONDS="8"), Verdict.KEEP),
        (_half(9000, CHECK_IMMUNITY_TIME_IN_SECONDS="8"), Verdict.ASK),
        (_half(5000, CHECK_IMMUNITY_TIME_IN_SECONDS="soon"), Verdict.KEEP),
    ],
)
def test_the_rules_in_upstreams_order(half: StoredMessage, expected: Verdict) -> None:
    """Too often asked or too old, too young, asked to wait, else asked."""
    assert verdict(half, NOW, LIMITS) is expected


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
