"""Which segments may go: pure, so every rule is one call."""

from dataclasses import replace

import pytest

from tandemq.store.config import StoreConfig
from tandemq.store.retention import HOUR_MS, SegmentAge, decide

NOW = 1_700_000_000_000
ANY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
NEVER = StoreConfig(delete_when="00", disk_used_ratio_max=75)
AT_ANY_HOUR = StoreConfig(delete_when=ANY_HOUR)


def aged(*hours: float) -> list[SegmentAge]:
    """Segments whose last records were stored so many hours ago, oldest first."""
    return [SegmentAge(number * 100, NOW - int(age * HOUR_MS)) for number, age in enumerate(hours)]


def test_expired_segments_go_at_the_hour_the_oldest_first() -> None:
    found = decide(AT_ANY_HOUR, aged(100, 73, 71, 1), NOW, 0.1, writable=True)
    assert (found.delete, found.writable) == ((0, 100), True)
    assert ANY_HOUR in found.reason


def test_one_that_has_not_expired_keeps_all_after_it() -> None:
    """The log has no holes: what follows a kept segment is kept, however old it claims to be."""
    assert decide(AT_ANY_HOUR, aged(100, 1, 100), NOW, 0.1, writable=True).delete == (0,)


def test_at_other_hours_only_a_full_disk_or_an_operator_deletes() -> None:
    # The hour is local: of two hours apart at least one is another one.
    configs = [replace(NEVER, delete_when=hour) for hour in ("03", "15")]
    quiet = [decide(config, aged(100), NOW, 0.5, writable=True) for config in configs]
    assert () in [found.delete for found in quiet]
    for config in configs:
        assert decide(config, aged(100), NOW, 0.76, writable=True).delete == (0,)
        assert decide(config, aged(100), NOW, 0.5, writable=True, manual=True).delete == (0,)
        assert decide(config, aged(1), NOW, 0.5, writable=True, manual=True).delete == ()


def test_above_the_forcible_ratio_the_oldest_go_unexpired() -> None:
    assert decide(AT_ANY_HOUR, aged(2, 1), NOW, 0.86, writable=True).delete == (0, 100)
    kept = replace(AT_ANY_HOUR, clean_forcibly_enable=False)
    assert decide(kept, aged(2, 1), NOW, 0.86, writable=True).delete == ()


def test_one_run_deletes_no_more_than_the_batch() -> None:
    config = replace(AT_ANY_HOUR, delete_batch_max=2)
    assert decide(config, aged(100, 100, 100), NOW, 0.1, writable=True).delete == (0, 100)


@pytest.mark.parametrize(
    ("used", "was_writable", "is_writable"),
    [(0.91, True, False), (0.90, True, True), (0.88, True, True), (0.88, False, False), (0.85, False, True)],
)
def test_writing_stops_at_one_ratio_and_resumes_at_a_lower_one(
    used: float, was_writable: bool, is_writable: bool
) -> None:
    """Else a disk at the edge would open and shut with every look."""
    assert decide(AT_ANY_HOUR, [], NOW, used, writable=was_writable).writable is is_writable
