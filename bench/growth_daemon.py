"""A name server or broker as `tandemq` starts it, which tells the longest turn of its loop in processor time.

    python bench/growth_daemon.py broker -c broker.conf     # SIGUSR1: writes it to broker.turns, and begins anew

`tandemq_loop_longest_turn_seconds` is what clients feel, and on a machine with other work it is that work, too. Here a
timer reads the processor time of the loop's thread every millisecond; what lies between two readings is a turn, or
rarely two.
"""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

from tandemq.cli.main import main
from tandemq.remoting.turns import LoopTurns

TICK_SECONDS = 0.001


class Probe:
    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._loop = loop
        self._longest = 0.0
        self._last = time.thread_time()
        loop.add_signal_handler(signal.SIGUSR1, self._tell)
        self._tick()

    def _tick(self) -> None:
        now = time.thread_time()
        self._longest = max(self._longest, now - self._last)
        self._last = now
        self._loop.call_later(TICK_SECONDS, self._tick)

    def _tell(self) -> None:
        beside = self._path.with_suffix(".turns.tmp")
        beside.write_text(json.dumps({"longest": self._longest}))
        beside.replace(self._path)
        self._longest, self._last = 0.0, time.thread_time()


def probe_loops(path: Path) -> None:
    """Has the first server of this process bring the probe with it."""
    watch = LoopTurns.watch
    probes: list[Probe] = []

    def watch_too(turns: LoopTurns, loop: asyncio.AbstractEventLoop) -> None:
        watch(turns, loop)
        if not probes:
            probes.append(Probe(path, loop))

    LoopTurns.watch = watch_too  # type: ignore[method-assign]


if __name__ == "__main__":
    probe_loops(Path(sys.argv[sys.argv.index("-c") + 1]).with_suffix(".turns"))
    main()
