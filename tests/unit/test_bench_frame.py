"""The frame of the benchmarks: every side in turn, medians, ratios, goals, sides that cannot be measured."""

from collections.abc import Mapping

import pytest
from bench import frame, report
from bench.frame import Benchmark, Figure, Run, Unavailable


def _benchmark(asked: list[tuple[int, str]], figures: Mapping[str, Figure]) -> Benchmark:
    def side(name: str, *values: float) -> frame.Side:
        def measure(run: Run) -> Mapping[str, float]:
            asked.append((run.round, name))
            return {"rate": values[run.round]}

        return measure

    def nobody(run: Run) -> Mapping[str, float]:
        raise Unavailable("no such peer here")

    sides = {"ours": side("ours", 30, 10, 20), "peer": side("peer", 9, 10, 11), "absent": nobody}
    return Benchmark(what="a test", figures=figures, sides=sides, rounds=3)


def test_sides_take_turns_and_each_round_begins_with_another() -> None:
    """A machine that slows down slows all sides alike."""
    asked: list[tuple[int, str]] = []
    frame.run("test", _benchmark(asked, {"rate": Figure("1/s")}))
    assert asked == [(0, "ours"), (0, "peer"), (1, "peer"), (1, "ours"), (2, "ours"), (2, "peer")]


def test_medians_ratio_and_verdict() -> None:
    """Our median is compared with the best other side's, and with both kinds of goals."""
    result = frame.run("test", _benchmark([], {"rate": Figure("1/s", goal=25, goal_ratio=1.5)}))
    assert result.median("ours", "rate") == 20
    assert result.ratio("rate") == 2
    assert result.verdict("rate") == "missed: ≥ 25 1/s, met: ≥ 1.5 × the best"
    assert "ratio 2.00" in report.table(result)


def test_less_may_be_better() -> None:
    """Then the best other side is the smallest and a goal is an upper bound."""
    result = frame.run("test", _benchmark([], {"rate": Figure("ms", "less", goal=25, goal_ratio=0.5)}))
    assert result.verdict("rate") == "met: ≤ 25 ms, missed: ≤ 0.5 × the best"


def test_a_side_that_cannot_be_measured_is_left_out_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """It is asked once, not every round."""
    result = frame.run("test", _benchmark([], {"rate": Figure("1/s")}))
    assert result.left_out == {"absent": "no such peer here"}
    assert capsys.readouterr().out.count("absent left out") == 1
    assert set(result.as_json()["figures"]["rate"]["sides"]) == {"ours", "peer"}


def test_a_tiny_run_does_less() -> None:
    """--scale shrinks counts, never below the least that makes sense."""
    run = Run(0.01, directory=frame.ROOT)
    assert (run.count(1000), run.count(10), run.count(10, least=5)) == (10, 1, 5)
