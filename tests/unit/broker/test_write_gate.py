"""Why a broker takes no messages."""

import ast
from pathlib import Path

import pytest

import tandemq.broker
from tandemq.broker.write_gate import WriteGate, WriteRefused


def test_the_newest_reason_is_told_until_writes_are_allowed() -> None:
    gate = WriteGate()
    gate.check()
    gate.refuse("it asks its replicas")
    gate.refuse("it takes over tables")
    with pytest.raises(WriteRefused, match="takes over tables"):
        gate.check()
    gate.allow()
    gate.check()
    assert gate.refusal is None


def test_nothing_opens_a_gate_that_has_ended_nor_hides_why() -> None:
    gate = WriteGate()
    gate.end("the broker is stopping")
    gate.allow()
    gate.refuse("this broker is a slave")
    with pytest.raises(WriteRefused, match="is stopping"):
        gate.check()


def test_nobody_but_the_gate_says_why_writes_are_refused() -> None:
    """Senders, services, the dispatcher and the status read one attribute; one file assigns it."""
    broker = Path(tandemq.broker.__file__).parent
    assert [path.name for path in broker.rglob("*.py") if _assigns_refusal(path)] == []


def _assigns_refusal(path: Path) -> bool:
    """Whether a module assigns `….writer.refusal` or `….gate.refusal`; a failover has a refusal of its own."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr == "refusal"
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in {"writer", "gate", "_gate", "_writer"}
        for node in ast.walk(ast.parse(path.read_text()))
    )
