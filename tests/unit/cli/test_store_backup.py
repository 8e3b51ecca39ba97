"""`tandemq store backup` and `restore` as commands: what they print, for people and for programs."""

import json
from pathlib import Path

from tests.unit.backup.stores import opened, put
from typer.testing import CliRunner

from tandemq.cli.store import app


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_there_and_back(tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    put(store, 40)
    assert "log files copied" in run("backup", tmp_path / "store", tmp_path / "backup")
    again = json.loads(run("backup", tmp_path / "store", tmp_path / "backup", "--json"))
    assert again["position"] == store.appended
    assert (again["filesCopied"], again["bytesCopied"]) == (0, 0)
    assert again["filesKept"] > 1
    assert "it is a new replica" in run("restore", tmp_path / "backup", tmp_path / "new")
    other = json.loads(run("restore", tmp_path / "backup", tmp_path / "newer", "--json"))
    assert (other["position"], other["queues"], other["lastEpoch"]) == (store.appended, 1, 0)
    assert "is whole" in run("verify", tmp_path / "new")
    store.close()


def test_a_repair_is_told(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, 40)
    store.close()
    (tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}").unlink()
    assert CliRunner().invoke(app, ["verify", str(tmp_path)]).exit_code == 1
    assert "mended   consumequeue/t/0: built anew" in run("verify", tmp_path, "--repair")
    assert json.loads(run("verify", tmp_path, "--repair", "--json"))["repaired"] == []
