"""A backup is read whole, and what is not what it was is named."""

import json
from pathlib import Path

import pytest
from tests.unit.backup.stores import opened, put
from typer.testing import CliRunner

from tandemq.backup.check import check
from tandemq.backup.take import back_up
from tandemq.backup.target import DirectoryTarget
from tandemq.cli.store import app
from tandemq.errors import StoreError
from tandemq.sim.clock import ManualClock


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    store = opened(tmp_path / "store")
    put(store, 40)
    target = DirectoryTarget(tmp_path / "backup")
    back_up(tmp_path / "store", target, ManualClock())
    target.close()
    store.close()
    return tmp_path / "backup"


def damage(backup: Path) -> Path:
    path = sorted((backup / "commitlog").iterdir())[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


def test_every_file_is_read(backup: Path) -> None:
    seen: list[tuple[int, int]] = []
    target = DirectoryTarget(backup)
    assert check(target, lambda done, total: seen.append((done, total))).problems == []
    assert seen[-1][0] == seen[-1][1] > 12_000
    path = damage(backup)
    sorted((backup / "commitlog").iterdir())[0].unlink()
    problems = check(target).problems
    assert len(problems) == 2
    assert "is missing" in problems[0]
    assert f"{path} is damaged" in problems[1]
    target.close()


def test_nothing_there_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no backup"):
        check(DirectoryTarget(tmp_path / "none"))


def test_verify_knows_a_backup(backup: Path) -> None:
    """It said of a whole one that all its queues were missing."""
    run = CliRunner().invoke
    whole = run(app, ["verify", str(backup), "--json"])
    assert (whole.exit_code, json.loads(whole.stdout)["ok"]) == (0, True)
    refused = run(app, ["verify", str(backup), "--repair"])
    assert isinstance(refused.exception, StoreError)
    damage(backup)
    assert run(app, ["verify", str(backup)]).exit_code == 1
