"""Mends what can be derived from the log: queues, index and checkpoint. The log itself is never touched.

A store whose log is damaged is left as it is: opening it for writing would end the log at the damage. Its files come
back from a replica or a backup first.
"""

from dataclasses import dataclass
from pathlib import Path

from tandemq.store.config import StoreConfig
from tandemq.store.disk import Disk
from tandemq.store.rebuild import rebuild
from tandemq.store.verify import Progress, Report, verify


@dataclass(frozen=True, slots=True)
class Repaired:
    before: Report
    after: Report
    """What a second pass found; the first again if nothing was done."""
    done: list[str]
    """What was mended, one sentence for each queue, index or checkpoint."""
    refused: str = ""
    """Why nothing was done although something is wrong."""


def repair(disk: Disk, root: Path, config: StoreConfig, progress: Progress | None = None) -> Repaired:
    """Verifies a store that no broker has open, builds its views anew if one of them is wrong, and verifies again."""
    before = verify(disk, root, config, progress)
    if before.ok and not before.checkpoint:
        return Repaired(before, before, [])
    if before.log_damage:
        return Repaired(before, before, [], f"the log is damaged ({before.log_damage}), so nothing was changed")
    rebuilt = rebuild(disk, root, config)
    after = verify(disk, root, config, progress)
    done = [f"{where}: built anew from the log ({what})" for where, what in _first_of_each(before).items()]
    if not done:
        done = [f"{rebuilt.status.queues} queues and {rebuilt.status.index_files} index files: built anew from the log"]
    done.append(f"checkpoint: written anew ({before.checkpoint or 'it vouched for what was wrong'})")
    return Repaired(before, after, done)


def _first_of_each(report: Report) -> dict[str, str]:
    """Returns what is wrong with each queue and with the index."""
    found: dict[str, str] = {}
    for problem in report.problems:
        where = "index" if problem.where.startswith("index") else problem.where
        found.setdefault(where, problem.what)
    return found
