"""Keeps the pauses of Python's cyclic garbage collector short in a server that lives for months.

A full collection examines every container, and a broker with its tables full has a million of them: the loop stood for
0.8 s at a time. What survives one full collection nearly always lives on, so it is set aside (`gc.freeze`) and not
examined again, until as much has been set aside as there was after the last look at everything: then one collection
looks at everything again, because cycles among what was set aside would stay for ever.
"""

import gc
from typing import Any, Final

SET_ASIDE_MIN: Final = 200_000
"""Objects: so many are examined in a few hundredths of a second, whatever there was before."""
_FULL: Final = 2


class LongLived:
    """Sets survivors aside after every full collection of this process, from `begin` to `end`."""

    def __init__(self) -> None:
        self._after_last_look = 0
        self._looks = False

    def begin(self) -> None:
        """Marks what is there now, which the start made, as lasting."""
        gc.freeze()
        self._after_last_look = gc.get_freeze_count()
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        gc.callbacks.remove(self._collected)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop" or info["generation"] != _FULL:
            return
        gc.freeze()
        aside = gc.get_freeze_count()
        if self._looks:
            self._looks, self._after_last_look = False, aside
        elif aside > 2 * self._after_last_look + SET_ASIDE_MIN:
            self._looks = True
            gc.unfreeze()
