"""Processes that must not outlive whoever started them, however that ends.

Popen([…], preexec_fn=die_with_parent)
"""

import contextlib
import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
"""Loaded before a fork, after which little is allowed."""


def die_with_parent() -> None:
    """Asks the kernel to kill this process when the thread that started it is gone (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
