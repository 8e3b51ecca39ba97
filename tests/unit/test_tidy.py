"""What is never right, whatever the feature: checked on the source itself."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FILE_CALLS = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}
CLOCK_READERS = {"time", "datetime"}


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _nodes(path: Path) -> list[ast.AST]:
    """Returns every node of a file. Several tests ask for the same files, and parsing them is most of their work."""
    return list(ast.walk(_parsed(path)))


def _imports(path: Path) -> set[str]:
    names = set()
    for node in _nodes(path):
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
    for node in _nodes(path):
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


# Tests ----------------------------------------------------------------------------------------------------------------

PEER_PROGRAMS = ROOT / "tests" / "interop" / "clients"
"""Run with a real client in an environment of their own, where nothing of ours can be imported."""


def _sleeps(path: Path) -> list[str]:
    """Real pauses: `sleep(…)` but for `sleep(0)`, and waits for an event that nobody sets."""
    found = []
    for node in _nodes(path):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        never_set = name == "wait" and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)
        seconds = node.args[0]
        if (name == "sleep" and not (isinstance(seconds, ast.Constant) and seconds.value == 0)) or never_set:
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def _waiters(path: Path) -> list[str]:
    """Functions of a test file that poll by themselves."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for node in _nodes(path)
        if isinstance(node, functions) and node.name in {"until", "wait_until", "eventually"}
    ]


def test_tests_wait_for_conditions_and_do_not_sleep() -> None:
    """No real sleep in unit tests, at most one per hundred tests elsewhere; `testing/waiting.py` has the only loop."""
    unit = [path for path in TESTS if path.is_relative_to(ROOT / "tests" / "unit")]
    others = [path for path in TESTS if path not in unit]
    count = sum(
        node.name.startswith("test_") for path in others for node in _nodes(path) if isinstance(node, ast.FunctionDef)
    )
    own_loop = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in PEER_PROGRAMS.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "the loop of `until`" in line
    ]
    assert [use for path in unit for use in _sleeps(path)] == []
    found = [use for path in others for use in _sleeps(path) if use not in own_loop]
    assert len(found) <= count // 100, found
    assert [use for path in TESTS if not path.is_relative_to(PEER_PROGRAMS) for use in _waiters(path)] == []


NO_UNIT_TEST = ROOT / "tests" / "unit" / "without_a_unit_test.txt"


def _has_a_unit_test(module: str) -> bool:
    """A module `a/b.py` is tested by `tests/unit/a/test_b.py`, or by a file whose name begins like that."""
    folder, _, name = module.removesuffix(".py").rpartition("/")
    return any((ROOT / "tests" / "unit" / folder).glob(f"test_{name}*.py"))


def test_unit_tests_mirror_the_source() -> None:
    """Modules have their unit test in the same folder below tests/unit, but for a list that only gets shorter.

    Rooms are compared by number, so that a module of the list may be renamed. `python tests/unit/test_tidy.py` writes
    the list anew; it must not grow.
    """
    listed = Counter(_room(module) for module in NO_UNIT_TEST.read_text().split())
    untested = _untested()
    grown = {room: count for room, count in Counter(map(_room, untested)).items() if count > listed[room]}
    new = sorted(set(untested) - set(NO_UNIT_TEST.read_text().split()))
    assert grown == {}, f"write a unit test for {', '.join(module for module in new if _room(module) in grown)}"


def _untested() -> list[str]:
    modules = [
        path.relative_to(ROOT / "src" / "tandemq").as_posix()
        for path in SOURCES
        if path.name not in {"__init__.py", "__main__.py"} and _functions(path)
    ]
    return [module for module in modules if not _has_a_unit_test(module)]


def _room(module: str) -> str:
    return module.partition("/")[0]


def _functions(path: Path) -> bool:
    return any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in _nodes(path))


# Source ---------------------------------------------------------------------------------------------------------------


def test_only_the_disk_module_maps_files() -> None:
    """mmap has one owner in the store; Spark's workers map files they only read."""
    users = {path.relative_to(ROOT / "src").as_posix() for path in SOURCES if "mmap" in _imports(path)}
    assert {user for user in users if not user.startswith("tandemq/spark/")} <= {"tandemq/store/disk.py"}


def test_codecs_and_formats_open_no_file() -> None:
    """The import contracts forbid them os, io and their like; `open` needs no import."""
    rooms = [path for room in ("codec", "formats", "model") for path in (ROOT / "src" / "tandemq" / room).rglob("*.py")]
    assert len(rooms) > 20
    assert [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in rooms
        for node in _nodes(path)
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in FILE_CALLS
    ] == []


def test_every_module_says_what_it_owns() -> None:
    """A module's docstring is its sign at the door."""
    assert [str(path.relative_to(ROOT)) for path in SOURCES if ast.get_docstring(_parsed(path)) is None] == []


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


if __name__ == "__main__":
    NO_UNIT_TEST.write_text("\n".join(_untested()) + "\n")
