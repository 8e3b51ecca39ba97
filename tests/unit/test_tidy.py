"""What is never right, whatever the feature: checked on the source itself."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CLOCK_READERS = {"time", "datetime"}


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


def _reads_the_clock(path: Path) -> list[str]:
    """Calls of time.time(), time.monotonic(), time.sleep(), datetime.now() and the like."""
    forbidden = {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "sleep",
        "now",
        "utcnow",
        "today",
    }
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in CLOCK_READERS and node.attr in forbidden:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.value.id}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found.append(f"{path.relative_to(ROOT)}:{node.lineno} from time import …")
    return found


def test_only_the_clock_module_reads_the_clock() -> None:
    """Everything else takes `now` or a Clock, so that tests own the time."""
    found = [use for path in SOURCES if path.name != "clock.py" for use in _reads_the_clock(path)]
    assert found == []


def test_only_the_disk_module_maps_files() -> None:
    """mmap has one owner in the store; Spark's workers map files they only read."""
    users = {path.relative_to(ROOT / "src").as_posix() for path in SOURCES if "mmap" in _imports(path)}
    assert {user for user in users if not user.startswith("tandemq/spark/")} <= {"tandemq/store/disk.py"}


def test_every_module_says_what_it_owns() -> None:
    """A module's docstring is its sign at the door."""
    assert [
        str(path.relative_to(ROOT)) for path in SOURCES if ast.get_docstring(ast.parse(path.read_text())) is None
    ] == []


@pytest.mark.parametrize("needle", ["/work/", "/root/", "/home/"])
def test_no_path_of_a_machine_is_committed(needle: str) -> None:
    """A clone has to work anywhere."""
    texts = [
        p
        for folder in ("src", "tests", "bench", "docs")
        for p in (ROOT / folder).rglob("*")
        if p.suffix in {".py", ".md", ".sh", ".java", ".go", ".js", ".toml"}
    ]
    here = Path(__file__).resolve()
    assert [str(p.relative_to(ROOT)) for p in texts if p != here and needle in p.read_text(errors="replace")] == []
