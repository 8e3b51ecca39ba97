"""A worker process of Spark is made ready once."""

import subprocess
import sys

_PROGRAM = """
import gc
from tandemq.spark.worker import settle
before = gc.get_freeze_count()
settle()
after = gc.get_freeze_count()
kept = [[] for _ in range(100)]
settle()
print(before, after > 0, gc.get_freeze_count() == after)
"""


def test_only_the_first_task_sets_what_was_imported_aside() -> None:
    """In a process of its own: what is set aside here would stay so for all tests after this one."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True", "True"]
