"""What bursts need is loaded before they come."""

import subprocess
import sys

PROGRAM = """
import sys
from tandemq.testing.local_broker import LocalBroker
from tandemq.testing.waiting import wait_until
assert "numpy" not in sys.modules
with LocalBroker():
    wait_until(lambda: "tandemq.formats.batch_arrays" in sys.modules, "the arrays", seconds=30)
"""


def test_a_broker_loads_the_arrays_before_the_first_burst() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
