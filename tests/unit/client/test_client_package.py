"""What the package offers is there when it is asked for, and not before."""

import subprocess
import sys

import pytest

from tandemq import client


def test_every_name_that_is_offered_can_be_had() -> None:
    assert [name for name in client.__all__ if getattr(client, name, None) is None] == []
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = client.Nothing  # type: ignore[attr-defined]


def test_a_part_is_imported_without_the_others() -> None:
    code = "import sys, tandemq.client.group_reader; print('tandemq.client.producer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    code = "from tandemq.client import *; print(Producer.__name__, TAG, TandemError.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Producer TAG TandemError"


def test_no_name_is_hidden_by_a_module_once_that_is_imported() -> None:
    """An imported submodule becomes an attribute of its package, under a name that no function may have then."""
    code = (
        "import pkgutil, importlib, types, tandemq.client as client\n"
        "for found in pkgutil.iter_modules(client.__path__):\n"
        "    if found.name != 'otel':\n"
        "        importlib.import_module(f'tandemq.client.{found.name}')\n"
        "print([name for name in client.__all__ if isinstance(getattr(client, name), types.ModuleType)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
