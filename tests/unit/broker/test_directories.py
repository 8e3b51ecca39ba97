"""A commit log on another disk."""

from pathlib import Path

import pytest

from tandemq.broker.config import BrokerConfig
from tandemq.broker.directories import place_directories
from tandemq.errors import ConfigError


def test_the_usual_place_needs_no_link(tmp_path: Path) -> None:
    config = BrokerConfig(
        broker_name="b", store_path_root_dir=str(tmp_path), store_path_commit_log=str(tmp_path / "commitlog")
    )
    assert config.store_directories == {}


def test_another_place_is_linked_and_found_again(tmp_path: Path) -> None:
    root, disk = tmp_path / "root", tmp_path / "disk" / "log"
    for _ in range(2):
        place_directories(root, {"commitlog": disk})
        assert (root / "commitlog").resolve() == disk
        (disk / "file").write_text("x")


def test_what_is_there_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        place_directories(tmp_path, {"commitlog": tmp_path / "elsewhere"})
