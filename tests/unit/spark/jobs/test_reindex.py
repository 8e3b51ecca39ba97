"""Sizes, names, the lock and the swap of rebuilt views. The rebuilding itself: test_derived_views."""

import os
from pathlib import Path

import numpy as np
import pytest

from tandemq.errors import ConfigError
from tandemq.spark.jobs.reindex import _different, _index_names, _locked, _sizes, _slices, _swap

PARTS = [("one", 5), ("two", 3)]


def test_keys_are_taken_from_the_files_that_hold_them() -> None:
    assert list(_slices(PARTS, 0, 8)) == [("one", 0, 5), ("two", 0, 3)]
    assert list(_slices(PARTS, 4, 6)) == [("one", 4, 1), ("two", 0, 1)]
    assert list(_slices(PARTS, 8, 9)) == []


def test_index_files_keep_their_names_or_get_the_time_of_their_first_message(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20260101000000000").touch()
    assert _index_names(tmp_path / "index", 1, [], 10) == ["20260101000000000"]
    keys = np.zeros(4, dtype=[("time", "<i8")])
    keys["time"] = 1_700_000_000_123
    np.save(tmp_path / "keys.npy", keys)
    made = _index_names(tmp_path / "index", 2, [(str(tmp_path / "keys.npy"), 4)], 2)
    assert made == ["20231114221320123", "20231114221320124"]


def test_sizes_that_do_not_fit_the_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(100))
    with pytest.raises(ConfigError, match="have 100 bytes, 10 slots and 20 entries make"):
        _sizes(tmp_path, 0, 10, 20, "1s")
    (tmp_path / "consumequeue" / "t" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}").write_bytes(bytes(4000))
    (tmp_path / "index" / "20260101000000000").unlink()
    assert _sizes(tmp_path, 0, 0, 0, "1s").queue_file == 4000


def test_the_new_views_take_the_place_of_the_old(tmp_path: Path) -> None:
    new = tmp_path / "reindex-new"
    for root, text in ((tmp_path, "old"), (new, "new")):
        for view in ("consumequeue", "index"):
            (root / view).mkdir(parents=True)
            (root / view / "file").write_text(text)
    assert _different(tmp_path, new) == ["consumequeue/file", "index/file"]
    _swap(tmp_path, new)
    assert (tmp_path / "index" / "file").read_text() == "new"
    assert not (tmp_path / "reindex-old").exists()


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    """Locks are a process's own, so another one tries."""
    with _locked(tmp_path, check=False):
        other = os.fork()
        if other == 0:
            try:
                with _locked(tmp_path, check=True):
                    os._exit(0)
            except ConfigError as error:
                os._exit(7 if "in use by a running broker: stop it to check" in str(error) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 7
