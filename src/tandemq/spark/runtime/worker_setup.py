"""What a Python worker process of Spark does before its first tasks."""

import contextlib
import ctypes
import gc
import sys
from io import BufferedIOBase
from types import FrameType
from zipimport import zipimporter

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


def forget_archives() -> None:
    """Forgets the importers of archives, which are made again when one is imported from.

    pyspark invalidates what importers know before the first task of every worker, and each importer then reads its
    archive's directory anew: pyspark's own, once per package of it, which takes a new worker a quarter of a second.
    """
    for place, importer in tuple(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[place]


def send_written() -> None:
    """Sends the batches that this task has handed over so far, the end of which would stay in a buffer until the next.

    A LIMIT that the first batch satisfies does not wait for a second one then. pyspark's serializer has the stream;
    where it is written in another way, nothing happens.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "dump_stream":
        frame = frame.f_back
    stream = None if frame is None else frame.f_locals.get("stream")
    if isinstance(stream, BufferedIOBase):
        stream.flush()


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
