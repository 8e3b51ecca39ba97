"""Processes do not outlive whoever started them."""

import signal
import subprocess
import sys
from pathlib import Path

from tandemq.testing.waiting import wait_until

PROGRAM = """
import sys
from pathlib import Path
from tandemq.testing.pair import BrokerProcess

broker = BrokerProcess(Path(sys.argv[1]), {})
broker.start()
print(broker.process.pid, flush=True)
sys.stdin.read()
"""


def test_a_broker_dies_with_the_program_that_started_it(tmp_path: Path) -> None:
    """A soak or a test that is killed leaves nothing that holds ports and files."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None
        broker = int(program.stdout.readline())
        assert _is_running(broker)
        program.send_signal(signal.SIGKILL)
    wait_until(lambda: not _is_running(broker))


def _is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
