"""Waiting between tries in a worker process: blocking, and cut short when the process is told to stop."""

import threading

_never = threading.Event()


def pause(seconds: float) -> None:
    """Blocks this thread for a while."""
    _never.wait(seconds)
