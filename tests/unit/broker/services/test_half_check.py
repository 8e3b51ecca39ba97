"""What a check round does with a half message that nobody has decided."""

import pytest

from tandemq.broker.services.half_check import CheckAction, CheckLimits, check_action
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
        (_half(5000), CheckAction.LATER),
        (_half(6001), CheckAction.ASK),
        (_half(-1), CheckAction.ASK),
        (_half(7000, TRANSACTION_CHECK_TIMES="14"), CheckAction.ASK),
        (_half(7000, TRANSACTION_CHECK_TIMES="15"), CheckAction.DISCARD),
        (_half(73 * 3600 * 1000), CheckAction.DISCARD),
        (_half(7000, CHECK_IMMUNITY_TIME_IN_SECONDS="8"), CheckAction.KEEP),
        (_half(9000, CHECK_IMMUNITY_TIME_IN_SECONDS="8"), CheckAction.ASK),
        (_half(5000, CHECK_IMMUNITY_TIME_IN_SECONDS="soon"), CheckAction.KEEP),
    ],
)
def test_the_rules_in_upstreams_order(half: StoredMessage, expected: CheckAction) -> None:
    """Too often asked or too old, too young, asked to wait, else asked."""
    assert check_action(half, NOW, LIMITS) is expected
