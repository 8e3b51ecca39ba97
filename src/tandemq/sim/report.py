"""What a run of the simulator or of its mutants says in a file: figures only, made by the command that ran.

The digest names the source that took part, so that whoever reads a report later can tell whether it is of that state.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from tandemq.sim.world import SimulationResult

TAKE_PART: Final = (
    "replication/*.py",
    "replication/mastership/*.py",
    "sim/*.py",
    "store/*.py",
    "codec/ha_*.py",
    "formats/*.py",
    "coordination/*.py",
    "broker/pair/reign.py",
    "broker/writer.py",
    "broker/failover/coordinator.py",
    "broker/failover/failover.py",
    "broker/failover/reign_lease.py",
    "broker/failover/succession.py",
)
LOOKERS_ON: Final = ("mutants.py", "etcd_mutants.py", "mutation.py", "report.py", "scenario.py")
"""Modules beside the simulator that start or tell of a run and take no part in it."""


@dataclass(slots=True)
class SeedsReport:
    """The sum of many runs."""

    first: int
    count: int = 0
    sent: int = 0
    acknowledged: int = 0
    reigns: int = 0
    steps: int = 0
    nodes: Counter[int] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    source: str = field(default_factory=lambda: digest_of_source())
    """Taken when the run begins: files may change while it goes on."""

    def add(self, result: SimulationResult) -> None:
        """Counts one run in."""
        self.count += 1
        self.sent += result.sent
        self.acknowledged += result.acknowledged
        self.reigns += result.reigns
        self.steps += result.steps
        self.nodes[result.nodes] += 1
        self.levels[result.level] += 1
        self.faults.update(result.faults)
        if result.violation:
            self.broken.append(result.summary)

    def text(self, command: str, rate: float) -> str:
        """Returns the whole report; `rate`: seeds a minute."""
        nodes = ", ".join(f"{count:,} of {size} nodes" for size, count in sorted(self.nodes.items()))
        levels = ", ".join(f"{count:,} at {level}" for level, count in sorted(self.levels.items()))
        lines = [
            "# Seeds of the simulator: what was run last, and its outcome",
            "",
            "Written by the command; do not edit.",
            "",
            f"    {command}",
            "",
            f"- {self.count:,} seeds, {self.first} to {self.first + self.count - 1}: **{len(self.broken)} broken**",
            f"- {self.sent:,} messages sent, {self.acknowledged:,} acknowledged, {self.reigns:,} reigns, "
            f"{self.steps:,} steps",
            f"- groups: {nodes}; {levels}",
            f"- {rate:.0f} seeds a minute of processor time",
            f"- source: {self.source}",
            "",
            "| fault | times |",
            "|---|---|",
            *(f"| {name} | {count:,} |" for name, count in sorted(self.faults.items())),
        ]
        if self.broken:
            lines += ["", "## Broken", "", *(f"- {summary}" for summary in self.broken)]
        return "\n".join(lines) + "\n"


def mutants_text(command: str, outcomes: Sequence[tuple[str, str, str, str]]) -> str:
    """Returns the report of mutants; an outcome is (name, rule, what it breaks, who notices it)."""
    survivors = [name for name, _, _, found in outcomes if not found]
    lines = [
        "# Mutants: which broken rule is noticed by whom",
        "",
        "Written by the command; do not edit.",
        "",
        f"    {command}",
        "",
        f"- {len(outcomes)} mutants, {len(outcomes) - len(survivors)} noticed, **{len(survivors)} not noticed**",
        f"- source: {digest_of_source()}",
        "",
        "| mutant | clause | breaks | noticed by |",
        "|---|---|---|---|",
        *(
            f"| {name} | {rule} | {_cell(breaks)} | {_cell(found) or '**nobody**'} |"
            for name, rule, breaks, found in outcomes
        ),
    ]
    return "\n".join(lines) + "\n"


def digest_of_source() -> str:
    """Returns a digest of the modules that a run of the simulator goes through, and how many they are."""
    root = Path(__file__).parent.parent
    files = sorted(path for part in TAKE_PART for path in root.glob(part) if path.name not in LOOKERS_ON)
    whole = sha256()
    for path in files:
        whole.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{whole.hexdigest()[:16]} ({len(files)} modules)"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
