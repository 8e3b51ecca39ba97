"""Keeps the pauses of Python's cyclic garbage collector short in a server that lives for months.

A full collection examines every container, and a broker with its tables full has a million of them: the loop stood for
0.8 s at a time. What survives one full collection nearly always lives on, so it is set aside (`gc.freeze`) and not
examined again. Cycles among what was set aside would stay for ever: when the process holds far more memory than after
the last look at everything, one collection looks at everything again.
"""

import gc
from pathlib import Path
from typing import Any, Final

GROWN_MIN: Final = 256 << 20
"""Bytes: twice the memory of the last look and this much more brings the next. A broker with 50,000 queues, 5,000
clients and 10,000 groups stays below, so no collection stops it for a tenth of a second."""
_FULL: Final = 2
_MIDDLES_PER_FULL: Final = 3
"""A full collection comes after so many of the middle generation, instead of 10, and so has 20,000 new objects to
examine, instead of 70,000, which took 30 ms."""


def memory_in_use() -> int:
    """Returns the bytes of this process that are its own, 0 where the system does not tell."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


class LongLived:
    """Sets survivors aside after every full collection of this process, from `begin` to `end`."""

    def __init__(self) -> None:
        self._after_last_look = 0
        self._looks = False
        self._thresholds = gc.get_threshold()

    def begin(self) -> None:
        """Marks what is there now, which the start made, as lasting."""
        gc.freeze()
        gc.collect()  # of nothing: Python lets a full collection wait for a quarter of what the last one examined
        self._thresholds = young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _MIDDLES_PER_FULL)
        self._after_last_look = memory_in_use()
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop" or info["generation"] != _FULL:
            return
        gc.freeze()
        used = memory_in_use()
        if self._looks:
            self._looks, self._after_last_look = False, used
        elif used > 2 * self._after_last_look + GROWN_MIN:
            self._looks = True
            gc.unfreeze()
