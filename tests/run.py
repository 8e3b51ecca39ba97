"""`./run test [quick] [pytest arguments]`: the checks, then the tests, then one line that says what ran.

Newcomers and CI use the same command. The quick tests run first, under coverage except for those that go through
thousands of cases; then the rest, several files at a time, since many of them wait for something. `quick` runs only the
quick tests, without coverage. With pytest arguments of your own (a file, `-k`) only those run. `./run check` runs only
the checks; `./run check --fix` first mends what a machine can mend.
"""

import os
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
QUICK = "not slow and not peer and not spark"
COVERED = f"{QUICK} and not exhaustive"
FILES_AT_A_TIME = ["--dist", "loadfile", "--no-loadscope-reorder", "-n"]
SHORT_LIVED_JVMS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The tests start a hundred JVMs that live for seconds: without the second compiler they take a third less time."""
SPARK_CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""With this class archive a Spark session takes half the processor time to start. Made once per environment."""

CHECKS: dict[str, list[str]] = {
    "format": ["ruff", "format", "--check", "-q", "src", "tests", "bench", "docs/generate.py"],
    "lint": ["ruff", "check", "-q", "src", "tests", "bench", "docs/generate.py"],
    "types": ["mypy"],
    "layers": ["lint-imports"],
}

FIXES: list[list[str]] = [
    ["ruff", "check", "-q", "--fix", "src", "tests", "bench", "docs/generate.py"],
    ["ruff", "format", "-q", "src", "tests", "bench", "docs/generate.py"],
    ["python", "docs/generate.py"],
]


class Tally:
    """What the pytest runs so far said, read from their reports."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.skipped: Counter[str] = Counter()
        self.passed_late: list[str] = []

    def add(self, report: Path) -> None:
        """Adds one run. A test that fails and whose fixture fails after it stands there twice, and counts once."""
        if not report.exists():
            return
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.add(name)
            elif (skip := case.find("skipped")) is not None:
                self.skipped[skip.get("message") or "no reason given"] += 1
            else:
                self.passed.add(name)
        self.passed -= self.failed

    def add_second_try(self, second: "Tally") -> None:
        self.passed_late = sorted(second.passed & self.failed)
        self.passed |= second.passed
        self.failed = (self.failed - second.passed) | second.failed

    def lines(self) -> list[str]:
        late = [f"FLAKY, passed at the second try only, find out why: {name}" for name in self.passed_late]
        reasons = [f"skipped {count}: {reason}" for reason, count in self.skipped.most_common()]
        return [
            *late,
            *reasons,
            f"{len(self.passed)} passed, {len(self.failed)} failed, {self.skipped.total()} skipped",
        ]


def fix() -> None:
    """Mends what a machine can: the format, what ruff can correct, the generated pages. What is left the checks say."""
    for tool, *arguments in FIXES:
        subprocess.run([BIN / tool, *arguments], cwd=ROOT, capture_output=True)


def run_checks() -> list[str]:
    """Runs every check; returns the names of those that failed."""
    failed = []
    for name, (tool, *arguments) in CHECKS.items():
        done = subprocess.run([BIN / tool, *arguments], cwd=ROOT, capture_output=True, text=True)
        print(f"check {name}: {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
        if done.returncode != 0:
            failed.append(name)
            print(done.stdout + done.stderr, flush=True)
    return failed


def environment() -> dict[str, str]:
    """Returns the variables of the tests: JVMs and Python processes start as fast as they can.

    Images with Python often forbid it to keep compiled modules. The tests start hundreds of processes, and each would
    compile every module anew.
    """
    settings = {"JAVA_TOOL_OPTIONS": SHORT_LIVED_JVMS}
    if SPARK_CLASSES.exists():
        settings["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={SPARK_CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**settings, **inherited}


def make_spark_classes() -> None:
    """The class archive; without Java there will be none, and the Spark tests say so."""
    if SPARK_CLASSES.exists():
        return
    made = SPARK_CLASSES.with_suffix(".new")
    made.unlink(missing_ok=True)
    options = ["--driver-java-options", f"-XX:ArchiveClassesAtExit={made} -Xlog:cds=off"]
    submit = [BIN / "spark-submit", *options, ROOT / "tests" / "spark" / "warm_up.py"]
    ours = {"PYSPARK_PYTHON": str(BIN / "python"), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(submit, cwd=ROOT, env=environment() | ours, capture_output=True)
    if done.returncode == 0 and made.exists():
        made.rename(SPARK_CLASSES)


def run_pytest(arguments: list[str], tally: Tally, *, coverage: bool = False) -> bool:
    """Runs pytest once; returns whether it ran to its end, whatever the tests said: the tally tells."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        tool = ["coverage", "run", "-m", "pytest"] if coverage else ["pytest"]
        command = [BIN / "python", "-m", *tool, f"--junitxml={report}", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment())
        tally.add(report)
    return done.returncode in (0, 1, 5)  # 1: tests failed; 5: there was none


def try_again(tally: Tally) -> bool:
    """Gives what failed a second try with the machine to itself; the last lines name what passed only then.

    Real clients, brokers and browsers have time limits of their own, which three files at a time can exceed on two
    processors. A fault of pure logic fails both times.
    """
    second = Tally()
    ended = run_pytest(["--last-failed", "--last-failed-no-failures=none"], second)
    tally.add_second_try(second)
    return ended


def report_coverage() -> None:
    subprocess.run([BIN / "coverage", "combine", "-q"], cwd=ROOT, check=False)
    done = subprocess.run([BIN / "coverage", "report", "--format=total"], cwd=ROOT, capture_output=True, text=True)
    print(f"coverage of the quick tests: {done.stdout.strip() or '?'} % of src (coverage html shows where)", flush=True)


def main(arguments: list[str]) -> int:
    maker = threading.Thread(target=make_spark_classes)
    if not arguments:
        maker.start()  # the checks leave the other processor idle
    if "--fix" in arguments:
        fix()
    failed_checks = run_checks()
    if "--only-checks" in arguments:
        return 1 if failed_checks else 0
    own = [argument for argument in arguments if argument != "quick"]
    tally = Tally()
    if own:
        ended = run_pytest(own, tally)
    elif "quick" in arguments:
        ended = run_pytest(["-m", QUICK, *FILES_AT_A_TIME, "2"], tally)
    else:
        ended = run_pytest(["--cache-clear", "-m", COVERED, *FILES_AT_A_TIME, "2"], tally, coverage=True)
        report_coverage()
        maker.join()
        ended &= run_pytest(["-m", f"not ({COVERED})", "--durations=25", *FILES_AT_A_TIME, "3"], tally)
        if tally.failed:
            ended &= try_again(tally)
    if failed_checks:
        print(f"checks failed: {', '.join(failed_checks)}")
    print("\n".join(tally.lines()), flush=True)
    return 0 if ended and not tally.failed and not failed_checks and tally.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
