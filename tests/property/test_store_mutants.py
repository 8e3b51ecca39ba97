"""The defects of a long life, put back one by one: the store's model finds each that its table says it finds.

The number is that of the trial in the table of `test_store_model.py`. Where a seed that finds it is known it is tried
first, so that this takes moments; when the model changes, others are tried.
"""

from collections.abc import Callable
from itertools import chain

import pytest
from tests.property.test_store_model import live

from tandemq.errors import DiskFull, NoDescriptors
from tandemq.store import recovery
from tandemq.store.cleaner import Cleaner
from tandemq.store.confirmed_mark import ConfirmedMark
from tandemq.store.flush import Flusher, ViewsWork
from tandemq.store.queues import QueueTable
from tandemq.store.recovery import Recovery
from tandemq.store.views import Views

pytestmark = pytest.mark.exhaustive

SEEDS = 1000
"""So many may look for a defect."""
Break = Callable[[pytest.MonkeyPatch], None]


def _numbers_in_queue_files_only(m: pytest.MonkeyPatch) -> None:
    m.setattr(QueueTable, "start_idle", lambda table, idle: None)


def _numbers_not_in_the_log(m: pytest.MonkeyPatch) -> None:
    m.setattr(Cleaner, "mention", lambda cleaner, first_offset, append_mark: None)


def _numbers_of_another_first_offset(m: pytest.MonkeyPatch) -> None:
    def know_starts_at(views: Views, first_offset: int) -> None:
        views.queue_table.starts_changed = True

    m.setattr(Views, "know_starts_at", know_starts_at)


def _deletions_do_not_reach_queues(m: pytest.MonkeyPatch) -> None:
    m.setattr(QueueTable, "delete_topic", lambda table, topic, position: 0)


def _a_full_disk_leaves_a_cut_announced(m: pytest.MonkeyPatch) -> None:
    m.setattr(Views, "sync_after_cut", lambda views: views._sync_paused(clean=False))


def _a_full_disk_ends_checkpoints(m: pytest.MonkeyPatch) -> None:
    sync = Flusher.sync_views_now

    def sync_views_now(flusher: Flusher, work: ViewsWork) -> None:
        try:
            sync(flusher, work)
        except (DiskFull, NoDescriptors) as error:
            flusher.views_problem = str(error)

    m.setattr(Flusher, "sync_views_now", sync_views_now)


def _a_full_disk_ends_retention(m: pytest.MonkeyPatch) -> None:
    def are_starts_saved(cleaner: Cleaner, first_offset: int) -> bool:
        views = cleaner._views
        views.starts = views.queue_table.starts(first_offset, views._flusher.flushed)
        views.save_starts(first_offset)
        return True

    m.setattr(Cleaner, "_are_starts_saved", are_starts_saved)


def _nothing_is_confirmed_at_a_start(m: pytest.MonkeyPatch) -> None:
    m.setattr(ConfirmedMark, "read", lambda mark: 0)
    m.setattr(Recovery, "_shown_before", lambda found: 0)


def _queue_files_are_not_looked_at(m: pytest.MonkeyPatch) -> None:
    m.setattr(recovery, "queues_problem", lambda *arguments: "")


def _index_files_are_not_looked_at(m: pytest.MonkeyPatch) -> None:
    m.setattr(recovery, "index_problem", lambda *arguments: "")


def _a_log_that_is_not_mounted_is_an_empty_one(m: pytest.MonkeyPatch) -> None:
    m.setattr(Recovery, "_evidence", lambda found: "")


BROKEN: list[tuple[str, Break, tuple[int, ...]]] = [
    ("2", _numbers_in_queue_files_only, (114,)),
    ("2", _numbers_not_in_the_log, (11,)),
    ("2", _numbers_of_another_first_offset, (2236,)),
    ("3", _deletions_do_not_reach_queues, ()),
    ("12", _nothing_is_confirmed_at_a_start, ()),
    ("13", _queue_files_are_not_looked_at, (46,)),
    ("13", _index_files_are_not_looked_at, (54,)),
    ("14", _a_log_that_is_not_mounted_is_an_empty_one, ()),
    ("15", _a_full_disk_leaves_a_cut_announced, (30,)),
    ("15", _a_full_disk_ends_checkpoints, (9,)),
    ("15", _a_full_disk_ends_retention, (63, 255)),
]


@pytest.mark.parametrize(("trial", "broken", "known"), BROKEN, ids=[f"{t}{b.__name__}" for t, b, _ in BROKEN])
def test_the_model_finds_a_defect_that_is_put_back(trial: str, broken: Break, known: tuple[int, ...]) -> None:
    for seed in chain(known, range(SEEDS)):
        with pytest.MonkeyPatch.context() as m:
            broken(m)
            try:
                live(seed, m)
            except Exception as error:
                print(f"{trial}: seed {seed} finds it: {type(error).__name__}: {str(error)[:150]}")
                return
            except pytest.fail.Exception as error:
                print(f"{trial}: seed {seed} finds it: {error}")
                return
    pytest.fail(f"{SEEDS} seeds live on with the defect of trial {trial}")
