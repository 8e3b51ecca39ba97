"""How far Spark is, for a progress bar."""

import threading
from types import SimpleNamespace
from typing import Any

from tandemq.spark.runtime.task_progress import TaskCount, running_tasks, watched_tasks


class Tracker:
    """Stages that run now; a stage may be over before it is asked for."""

    def __init__(self, *stages: tuple[int, int] | None) -> None:
        self._stages = stages

    def getActiveStageIds(self) -> list[int]:
        return list(range(len(self._stages)))

    def getStageInfo(self, stage: int) -> Any:
        found = self._stages[stage]
        return None if found is None else SimpleNamespace(numCompletedTasks=found[0], numTasks=found[1])


def test_stages_that_run_are_added_up() -> None:
    assert running_tasks(Tracker((1, 4), None, (2, 6))) == (3, 10)
    assert running_tasks(Tracker()) is None
    assert running_tasks(Tracker(None)) is None


def test_tasks_are_shown_while_a_block_runs() -> None:
    shown: list[TaskCount | None] = []
    seen = threading.Event()

    def show(count: TaskCount | None) -> None:
        shown.append(count)
        seen.set()

    session = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: Tracker((1, 2))))
    with watched_tasks(session, show):
        assert seen.wait(30)
    assert shown[0] == (1, 2)
    with watched_tasks(object(), show):  # Spark Connect
        pass
