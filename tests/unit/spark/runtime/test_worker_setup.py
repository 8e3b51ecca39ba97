"""A worker process of Spark is made ready once."""

import subprocess
import sys

_PROGRAM = """
import gc
from tandemq.spark.runtime.worker_setup import settle
kept, counts = [], [gc.get_freeze_count()]
for _ in range(4):
    settle()
    counts.append(gc.get_freeze_count())
    kept.append([[] for _ in range(100)])
print(*counts)
"""


def test_what_the_first_task_imports_is_set_aside_and_nothing_later() -> None:
    """In a process of its own: what is set aside here would stay so for all tests after this one."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    before, first, second, third, fourth = map(int, done.stdout.split())
    assert before == 0 < first
    assert first + 100 <= second == third == fourth
