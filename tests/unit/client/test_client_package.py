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
