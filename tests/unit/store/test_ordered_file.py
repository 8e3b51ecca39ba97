"""A file that the owner's thread and the flush thread replace."""

import threading
from pathlib import Path

from tandemq.store.disk import FileDisk
from tandemq.store.ordered_file import OrderedFile


def test_older_content_never_replaces_newer(tmp_path: Path) -> None:
    file = OrderedFile(FileDisk(), tmp_path / "file")
    older, newer = file.replacement(b"older"), file.replacement(b"newer")
    newer()
    older()
    assert (tmp_path / "file").read_bytes() == b"newer"


def test_content_made_before_the_file_was_removed_stays_away(tmp_path: Path) -> None:
    file = OrderedFile(FileDisk(), tmp_path / "file")
    file.replacement(b"one")()
    late = file.replacement(b"late")
    file.remove()
    late()
    assert not (tmp_path / "file").exists()


def test_two_threads_do_not_take_each_others_temporary_file(tmp_path: Path) -> None:
    """Both wrote `file.tmp`, and the second rename found none."""
    file = OrderedFile(FileDisk(), tmp_path / "file")
    writes = [file.replacement(b"%d" % number) for number in range(200)]
    failures: list[BaseException] = []

    def write_some(some: slice) -> None:
        try:
            for write in writes[some]:
                write()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write_some, args=(slice(first, None, 2),)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (tmp_path / "file").read_bytes() == b"199"
