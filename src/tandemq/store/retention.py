"""Pure: which segments may go, given now and disk use (DefaultMessageStore, CleanCommitLogService).

Expired segments go at the configured hour, at any hour when the disk is above diskMaxUsedSpaceRatio or an operator
asks; above diskSpaceCleanForciblyRatio the oldest go even if they have not expired. The last segment never goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tandemq.store.config import StoreConfig

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """One segment that may be asked about: its first offset and when its last record was stored."""

    base: int
    last_stored_ms: int


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What to delete (oldest first), whether writing is allowed, and why."""

    delete: tuple[int, ...]
    writable: bool
    reason: str


def decide(
    config: StoreConfig,
    segments: Sequence[SegmentAge],
    now_ms: int,
    used_ratio: float,
    *,
    writable: bool,
    manual: bool = False,
) -> RetentionDecision:
    """Returns what may go. `segments` lacks the one being written; `used_ratio` is from 0 to 1.

    `writable` is the current state.
    """
    used = used_ratio * 100
    forced = config.clean_forcibly_enable and used > config.disk_clean_forcibly_ratio
    if manual:
        reason = "asked for by the operator"
    elif used > config.disk_used_ratio_max:
        reason = f"the disk is {used:.0f} % full, above {config.disk_used_ratio_max} %"
    elif _is_hour(config.delete_when, now_ms):
        reason = f"it is one of the hours {config.delete_when}"
    else:
        return RetentionDecision((), _may_write(config, used, writable), "")
    expired_before = now_ms - config.file_reserved_hours * HOUR_MS
    delete = []
    for segment in segments[: config.delete_batch_max]:
        if not forced and segment.last_stored_ms > expired_before:
            break
        delete.append(segment.base)
    return RetentionDecision(tuple(delete), _may_write(config, used, writable), reason)


def _may_write(config: StoreConfig, used: float, writable: bool) -> bool:
    """Refuses above the warning ratio and allows again only below the forcible one: no flapping at the edge."""
    if used > config.disk_warning_ratio:
        return False
    return writable or used <= config.disk_clean_forcibly_ratio


def _is_hour(delete_when: str, now_ms: int) -> bool:
    hour = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone().hour
    return any(int(text) == hour for text in delete_when.split(";"))
