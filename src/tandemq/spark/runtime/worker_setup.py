"""What a Python worker process of Spark does before its first tasks."""

import contextlib
import ctypes
import gc

from tandemq.spark.runtime.stderr_filter import quiet_stderr

_KEPT_BYTES = 64 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>
_MMAPPED_BYTES_MIN = 32 << 20

_TASKS_THAT_IMPORT = 2

_tasks_seen = 0


def settle() -> None:
    """Makes a process ready for many tasks of much the same kind; to be called at the beginning of each."""
    global _tasks_seen
    if _tasks_seen == 0:
        _keep_memory()
        quiet_stderr()
    if _tasks_seen < _TASKS_THAT_IMPORT:
        _keep_objects()
        _tasks_seen += 1


def _keep_memory() -> None:
    """Arrays of some hundred kilobytes come and go with every batch: given back to the system each time, their pages
    are made and cleared anew, an eighth of a scan's time in Python. glibc only; elsewhere nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_MMAP_THRESHOLD, _MMAPPED_BYTES_MIN)


def _keep_objects() -> None:
    """Keeps what was imported out of the garbage collector's walks.

    pyspark collects garbage after every task and walks all that was ever imported: ten milliseconds and more, a good
    part of a small micro-batch. This happens at the start and once more before the second task, because the first one
    brings half as much again (pyarrow imports pandas when it meets its first array).
    """
    gc.collect()
    gc.freeze()
