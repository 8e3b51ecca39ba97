"""Every public name of the client has a docstring with an example; examples are Python with names that exist."""

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from tandemq import client
from tandemq.client import otel, sync

NAMES = [name for name in client.__all__ if inspect.isclass(getattr(client, name)) or callable(getattr(client, name))]
CLASSES = [
    (f"{room.__name__}.{name}", found)
    for room in (client, sync)
    for name, found in vars(room).items()
    if inspect.isclass(found) and (found.__module__ == room.__name__ or name in client.__all__)
]
KNOWN = {
    *vars(builtins),
    *vars(client),
    *("producer", "consumer", "admin", "broker", "listener", "message", "messages", "queue"),  # made a line earlier
    *("session", "database_is_up", "is_booked", "book", "check", "asyncio", "time", "sync", "otel", "config", "result"),
}


def examples(documented: Any) -> Iterator[ast.Module]:
    """Yields the paragraphs after the first that are Python: prose is none."""
    text = inspect.getdoc(documented) or ""
    block = ""
    for paragraph in re.split(r"\n\n", text)[1:]:
        block = f"{block}\n\n{paragraph}" if block else paragraph
        try:
            found = compile(textwrap.dedent(block), "doc", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError:
            block = ""
            continue
        assert isinstance(found, ast.Module)
        if not isinstance(found.body[0], ast.Expr) or not isinstance(found.body[0].value, ast.Name):
            yield found


def public(owner: type) -> Iterator[tuple[str, Any]]:
    for name, found in vars(owner).items():
        if not name.startswith("_") and (inspect.isfunction(found) or isinstance(found, property)):
            yield name, found


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name: str) -> None:
    if inspect.isclass(getattr(client, name)) or inspect.isfunction(getattr(client, name)):
        assert list(examples(getattr(client, name))), f"{name} has no example in its docstring"


@pytest.mark.parametrize(("name", "owner"), CLASSES)
def test_every_public_method_says_what_it_does(name: str, owner: type) -> None:
    silent = [method for method, found in public(owner) if not inspect.getdoc(found)]
    assert not silent, f"{name}: {silent} without a docstring"


@pytest.mark.parametrize(("name", "owner"), [*CLASSES, ("otel.instrument", otel.instrument)])
def test_the_names_in_examples_exist(name: str, owner: Any) -> None:
    documented = [owner, *(found for _, found in public(owner))] if inspect.isclass(owner) else [owner]
    for one in documented:
        for example in examples(one):
            unknown = _loaded(example) - _stored(example) - KNOWN
            assert not unknown, f"{name}: {unknown} in the example {ast.unparse(example)!r}"
            for call in ast.walk(example):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    _check_keywords(name, call)


def _check_keywords(name: str, call: ast.Call) -> None:
    """Arguments of calls by name: options that don't exist are the usual mistake in an example."""
    assert isinstance(call.func, ast.Name)
    function = getattr(client, call.func.id, None)
    if inspect.isclass(function):
        known = inspect.signature(function).parameters
        wrong = [keyword.arg for keyword in call.keywords if keyword.arg not in known]
        assert not wrong, f"{name}: {call.func.id} has no {wrong}"


def _loaded(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _stored(tree: ast.AST) -> set[str]:
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found |= {node.name, *(argument.arg for argument in node.args.args)}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return found
