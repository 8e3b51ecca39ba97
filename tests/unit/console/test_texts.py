"""Numbers and times as the pages write them."""

import pytest

from tandemq.console import texts

SPACE = "\u00a0"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"), (983, "983 B"), (1024, "1 KiB"), (1946, "1.90 KiB"), (59_494, "58.1 KiB"), (64 << 10, "64 KiB"),
        (2_469_606_195, "2.30 GiB"), (None, "not known"),
    ],
)  # fmt: skip
def test_sizes_have_three_digits(value: int | None, shown: str) -> None:
    assert texts.size(value).replace(SPACE, " ") == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0 ms"), (850, "850 ms"), (1900, "1.9 s"), (48_000, "48 s"), (252_000, "4 min 12 s"), (120_000, "2 min"),
        (255_600_000, "2 d 23 h"), (None, "not known"),
    ],
)  # fmt: skip
def test_durations_have_two_units_at_most(ms: int | None, shown: str) -> None:
    assert texts.duration(ms).replace(SPACE, " ") == shown


def test_counts_have_commas_and_what_is_not_known_is_no_zero() -> None:
    assert texts.count(1_772_640) == "1,772,640"
    assert texts.count(1.25) == "1.2"
    assert texts.count(None) == "not known"


def test_a_place_is_told_by_its_distance_to_the_end() -> None:
    assert texts.distance(10, 10) == "end"
    assert texts.distance(0, 2048) == f"−2{SPACE}KiB"
    assert texts.distance(None, 10) == "not known"


def test_a_hostile_timestamp_is_no_date_and_no_error() -> None:
    assert "ms since 1970" in texts.clock(2**62, 0)
    assert texts.iso(2**62) == ""
    assert texts.clock(0, 0) == "not known"


def test_today_has_a_time_and_older_days_a_date() -> None:
    now = 1_794_995_770_592
    assert len(texts.clock(now, now)) == len("14:31:07")
    assert len(texts.clock(now, now, milliseconds=True)) == len("14:31:07.123")
    assert "Nov" in texts.clock(now - 3 * 86_400_000, now)


def test_plurals() -> None:
    assert texts.plural(1, "slave") == "1 slave"
    assert texts.plural(2, "slave") == "2 slaves"
