"""The tree at the top of errors.py is the tree of classes."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import tandemq
from tandemq import errors
from tandemq.errors import Attempt, SendFailed, TandemError

SOURCE = Path(tandemq.__file__).parent
BUILT_IN = {"Exception", "ValueError", "RuntimeError", "OSError", "KeyError", "TypeError"}


def drawn() -> dict[str, tuple[str, str]]:
    """Returns name -> (parent, module or empty) for each line of the drawing."""
    found: dict[str, tuple[str, str]] = {}
    branch = ["TandemError"]
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"([│├└─ ]+)(\w+) *(?:([\w.]+): )?", line)
        if match is None:
            continue
        depth = len(match[1]) // 3
        del branch[depth:]
        module = match[3] or ""
        found[match[2]] = (branch[-1], module if "." in module else "")
        branch.append(match[2])
    return found


def descendants(kind: type[TandemError]) -> dict[str, tuple[str, str]]:
    found = {}
    for child in kind.__subclasses__():
        if not child.__module__.startswith("tandemq.") or child.__name__.startswith("_"):
            continue  # a test's own, or one that never leaves its module
        module = "" if child.__module__ == errors.__name__ else child.__module__.removeprefix("tandemq.")
        found[child.__name__] = (kind.__name__, module)
        found |= descendants(child)
    return found


def test_the_tree_is_complete() -> None:
    """Each class is drawn below its parent, with the module that declares it."""
    for module in pkgutil.walk_packages([str(SOURCE)], "tandemq."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert drawn() == descendants(TandemError)


def test_every_exception_is_in_the_tree() -> None:
    """None derives from a built-in exception: who catches TandemError catches all of ours."""
    strays = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") in BUILT_IN for base in node.bases)
    ]
    assert strays == ["errors.py: TandemError"]


def test_a_failed_send_tells_a_reason_once_for_each_broker() -> None:
    """A read-only master is asked until the deadline: eleven times the same two lines are no story."""
    busy = [Attempt("a", "a:1", queue, 1, "it is read-only") for queue in range(9)]
    failed = SendFailed("T", [*busy, Attempt("b", "b:1", 0, 2, "closed"), busy[0]], 14)
    assert str(failed) == (
        "message to 'T' not sent after 11 attempt(s): "
        "a (a:1) queue 0, 1 ms: it is read-only (8 more with the same answer); "
        "b (b:1) queue 0, 2 ms: closed; a (a:1) queue 0, 1 ms: it is read-only"
    )
    assert len(failed.attempts) == 11
