"""How far Spark is with the tasks of the jobs that run now, for a progress bar."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

_POLL_SECONDS = 0.3


class TaskCount(NamedTuple):
    done: int
    total: int


def running_tasks(tracker: Any) -> TaskCount | None:
    """Returns the tasks of all stages that run now, from a SparkContext's status tracker; None if nothing runs."""
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    if not known:
        return None
    return TaskCount(sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known))


@contextmanager
def watched_tasks(spark: Any, show: Callable[[TaskCount | None], None]) -> Iterator[None]:
    """Calls `show` several times a second while the block runs; never with Spark Connect, which does not tell."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:
        yield
        return
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(_POLL_SECONDS):
            try:
                show(running_tasks(tracker))
            except Exception:
                return  # the session has stopped

    thread = threading.Thread(target=watch, name="tandemq-task-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
