"""Ordinals of RocketMQ's MQVersion."""

import pytest

from tandemq.console.versions import version_text


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (317, "4.5.2"), (399, "4.9.3"), (407, "4.9.7"), (413, "5.0.0"), (475, "5.3.1"), (479, "5.3.3"),
        (480, "5.3.4 snapshot"), (121, "number 121"), (0, "not told"),
    ],
)  # fmt: skip
def test_versions_are_told_by_release(number: int, shown: str) -> None:
    assert version_text(number) == shown
