"""`./run test [quick] [pytest arguments]`: the checks, then the tests, then one line that says what ran.

The same command for a newcomer and for CI. `quick` leaves out what is marked slow, peer or spark.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

CHECKS: dict[str, list[str]] = {
    "format": ["ruff", "format", "--check", "-q", "src", "tests", "bench"],
    "lint": ["ruff", "check", "-q", "src", "tests", "bench"],
    "types": ["mypy"],
    "layers": ["lint-imports"],
}


def check() -> list[str]:
    """Runs every check; the names of those that failed."""
    failed = []
    for name, (tool, *arguments) in CHECKS.items():
        done = subprocess.run([BIN / tool, *arguments], cwd=ROOT, capture_output=True, text=True)
        print(f"check {name}: {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
        if done.returncode != 0:
            failed.append(name)
            print(done.stdout + done.stderr, flush=True)
    return failed


def main(arguments: list[str]) -> int:
    only_checks = "--only-checks" in arguments
    failed = check()
    if only_checks:
        return 1 if failed else 0
    quick = "quick" in arguments
    passed_on = [a for a in arguments if a != "quick"]
    selection = ["-m", "not slow and not peer and not spark"] if quick else []
    tests = subprocess.run([BIN / "python", "-m", "pytest", "-rs", *selection, *passed_on], cwd=ROOT)
    if failed:
        print(f"checks failed: {', '.join(failed)}")
    return tests.returncode or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
