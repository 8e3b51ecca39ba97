"""What brokers say of themselves, in columns."""

import pytest

from tandemq.cli.broker_admin import _first_rate, _percent, version_of


@pytest.mark.parametrize(
    ("facts", "version"),
    [
        ({"tandemqVersion": "1.2.3", "brokerVersionDesc": "V4_9_7"}, "TandemQ 1.2.3"),
        ({"brokerVersionDesc": "V5_3_3"}, "5.3.3"),
        ({}, "?"),
    ],
)
def test_versions(facts: dict[str, str], version: str) -> None:
    assert version_of(facts) == version


def test_numbers_in_texts() -> None:
    assert _first_rate("12.34 5.6 7.8") == 12.3
    assert _first_rate("") is None
    assert _percent("0.4567") == 45.7
    assert _percent("?") is None
