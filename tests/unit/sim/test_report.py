"""What a run writes down: counts that add up, every broken seed, and who notices which mutant."""

from tandemq.sim.report import SeedsReport, digest_of_source, mutants_text
from tandemq.sim.world import SimulationResult


def test_a_report_of_seeds_sums_them_up_and_names_the_broken() -> None:
    report = SeedsReport(70)
    report.add(SimulationResult(70, 2, "2", sent=10, acknowledged=8, faults={"kill": 2}))
    report.add(SimulationResult(71, 3, "all", sent=5, acknowledged=5, faults={"kill": 1, "slow": 1}))
    assert "- 2 seeds, 70 to 71: **0 broken**" in report.text("a command", 300.0)
    report.add(SimulationResult(72, 3, "all", violation="something was lost"))
    text = report.text("a command", 300.0)
    assert "    a command\n" in text
    assert "- 3 seeds, 70 to 72: **1 broken**" in text
    assert "15 messages sent, 13 acknowledged" in text
    assert "| kill | 3 |" in text
    assert "seed 72: " in text
    assert "something was lost" in text


def test_a_report_of_mutants_counts_those_that_nobody_notices() -> None:
    text = mutants_text("a command", [("one", "1", "breaks this", "seed 3: a | b"), ("two", "2", "breaks that", "")])
    assert "- 2 mutants, 1 noticed, **1 not noticed**" in text
    assert "| one | 1 | breaks this | seed 3: a \\| b |" in text
    assert "| two | 2 | breaks that | **nobody** |" in text


def test_the_digest_is_of_the_source_that_runs() -> None:
    assert digest_of_source() == digest_of_source()
