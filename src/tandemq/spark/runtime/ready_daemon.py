"""pyspark's daemon with all imported that a task of ours needs, so that a new worker begins at once.

Spark ends a worker whose rows were not all taken (`limit`, `take`, `show`), and the next one is forked from a daemon
that has imported nothing: half a second of imports before the first row. `spark.python.daemon.module` names this module
instead. A process with threads must not be forked, so if any import started one, pyspark's own daemon takes over.
"""

import gc
import importlib
import os
import sys
from pathlib import Path

from tandemq.spark.runtime.pause import pause
from tandemq.spark.runtime.worker_setup import forget_archives

DAEMON = "pyspark.daemon"
_PLANNER = "pyspark.sql.worker.plan_data_source_read"
PREPARED = {"pyspark.worker", "pyspark.sql.worker.create_data_source", _PLANNER}
"""The workers of tasks and those that plan a read: Spark ends each that was idle for a minute."""
_FORKS_WELL = "jemalloc_bg_thd"
"""Arrow's allocator gives memory back in a thread of its own, which it stops for a fork and starts again after it."""
_LOOKS, _LOOK_SECONDS = 100, 0.01
"""A thread gets its name a moment after it has started."""


def threads_in_the_way(directory: Path = Path("/proc/self/task")) -> list[str]:
    """Returns the names of threads that a fork would lose; none where the system does not tell."""
    try:
        others = [task for task in directory.iterdir() if task.name != str(os.getpid())]
        return [name for task in others if (name := (task / "comm").read_text().strip()) != _FORKS_WELL]
    except OSError:
        return []


def prepare(worker: str) -> None:
    """Imports what tasks of the sources and the sink import, and what pyarrow imports when it meets an array."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the only thread that numpy would start
    import pyarrow as pa

    importlib.import_module(worker)
    importlib.import_module(_PLANNER)  # what a task reads with is defined there
    import tandemq.spark.sink.writer
    import tandemq.spark.source.broker_queues
    import tandemq.spark.source.data_sources
    import tandemq.spark.source.file_queues
    import tandemq.spark.source.physical_order
    import tandemq.spark.source.queue_order  # noqa: F401

    pa.array([b""]).to_pylist()
    gc.collect()
    gc.freeze()


def main() -> None:
    worker = next(iter(sys.argv[1:]), "")
    if worker in PREPARED:
        prepare(worker)
        for _ in range(_LOOKS):
            if threads_in_the_way():
                pause(_LOOK_SECONDS)
        if threads_in_the_way():
            os.execv(sys.executable, [sys.executable, "-m", DAEMON, *sys.argv[1:]])
    from pyspark.daemon import manager

    forget_archives()
    manager()


if __name__ == "__main__":
    main()
