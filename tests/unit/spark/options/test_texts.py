"""Offsets, times and durations inside an option's text."""

import pytest

from tandemq.errors import ConfigError
from tandemq.spark.options.texts import check_time, listed, milliseconds, offsets_of, times_of


def test_offsets_by_topic_and_queue() -> None:
    assert offsets_of("earliest", "x") == "earliest"
    assert offsets_of('{"t": {"0": 5, "1": -1}, "a/u": {"2": -2}}', "x") == {"t": {0: 5, 1: -1}, "a/u": {2: -2}}
    assert offsets_of('{"store": 4096}', "x") == {"store": {-1: 4096}}


@pytest.mark.parametrize("text", ["Earliest", "soon", "", "5", '"latest"', "[]"])
def test_what_is_neither_word_nor_json_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"startingOffsets=.*must be earliest, latest or JSON"):
        offsets_of(text, "startingOffsets")


@pytest.mark.parametrize(
    "text", ["{}", '{"t": []}', '{"t": {}}', '{"t": {"x": 1}}', '{"t": {"0": "1"}}', '{"t": {"0": -3}}', "{"]
)
def test_json_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets"):
        offsets_of(text, "startingOffsets")


def test_times_are_milliseconds() -> None:
    assert times_of('{"t": {"0": 1700000000000}}', "x") == {"t": {0: 1_700_000_000_000}}
    with pytest.raises(ConfigError, match="are these seconds"):
        times_of('{"t": {"0": 1700000000}}', "x")
    check_time("x", 0)
    check_time("x", 10**11)
    for wrong in (1, 10**11 - 1, 10**14, 10**17):
        with pytest.raises(ConfigError, match=f"x={wrong}: must be 0 or from"):
            check_time("x", wrong)


def test_durations_and_lists() -> None:
    assert [milliseconds("x", text) for text in ("500ms", "30s", "2m", "1h")] == [500, 30_000, 120_000, 3_600_000]
    with pytest.raises(ConfigError, match="maxTriggerDelay='soon'"):
        milliseconds("maxTriggerDelay", "soon")
    assert listed(" a, b ,,c") == ("a", "b", "c")
