"""The rule of transaction checks: what a round does with a half message that nobody has decided yet. Pure."""

from dataclasses import dataclass
from enum import Enum

from tandemq.model.message import CHECK_IMMUNITY_SECONDS, TRANSACTION_CHECK_TIMES, StoredMessage


class CheckAction(Enum):
    """What a check round does with an undecided half."""

    DISCARD = "it was asked about often enough, or is older than the log keeps anything"
    LATER = "it is too young: this half and all after it wait for the next round"
    KEEP = "its producer wants more time: append it again without asking"
    ASK = "append it again and ask a producer of its group"


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """When halves are asked about (the transaction options of BrokerConfig)."""

    timeout_ms: int
    check_max: int
    retention_ms: int


def check_action(half: StoredMessage, now_ms: int, limits: CheckLimits) -> CheckAction:
    """Returns what to do, by the rules and in the order of upstream's TransactionalMessageServiceImpl.check."""
    age = now_ms - half.born_timestamp
    if check_times(half) >= limits.check_max or age > limits.retention_ms:
        return CheckAction.DISCARD
    if half.store_timestamp >= now_ms:
        return CheckAction.LATER
    immunity = immunity_ms(half, limits.timeout_ms)
    if immunity is not None:
        return CheckAction.KEEP if age <= immunity else CheckAction.ASK
    # A birth in the future means that the producer's clock is wrong: its age would never come, so ask now.
    return CheckAction.LATER if 0 <= age <= limits.timeout_ms else CheckAction.ASK


def check_times(half: StoredMessage) -> int:
    """Returns how often the half was asked about."""
    text = half.properties.get(TRANSACTION_CHECK_TIMES, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def immunity_ms(half: StoredMessage, default_ms: int) -> int | None:
    """Returns how long the producer does not want to be asked, None if it didn't say.

    An unreadable value counts as `default_ms`.
    """
    text = half.properties.get(CHECK_IMMUNITY_SECONDS)
    if not text:
        return None
    return int(text) * 1000 if text.isdecimal() and len(text) < 10 else default_ms
