"""Times as people give them."""

import pytest

from tandemq.console.times import local_text, parse_time
from tandemq.errors import ClientError

NOW = 1_794_995_770_000


def test_ages_milliseconds_and_dates_are_understood() -> None:
    assert parse_time("15m", NOW) == NOW - 900_000
    assert parse_time("1794995770000", 0) == NOW
    assert parse_time("1794995770", 0) == NOW
    assert parse_time("2026-11-18T09:56:10+00:00", 0) == NOW
    assert parse_time(local_text(NOW), 0) == NOW


@pytest.mark.parametrize("text", ["", "soon", "99999-01-01", "9" * 30, "-5m"])
def test_anything_else_is_told_with_what_is_expected(text: str) -> None:
    with pytest.raises(ClientError, match="15m"):
        parse_time(text, NOW)
