"""Whatever goes wrong is one sentence that says what to do, and an exit code; never a traceback."""

import json
import os
import socket
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

BROKER = "brokerName=b\nstorePathRootDir={store}\nlistenPort={port}\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"


def conf(directory: Path, text: str = "", **values: object) -> str:
    path = directory / "broker.conf"
    path.write_text(BROKER.format(**{"store": directory / "store", "port": 0, **values}) + text)
    return str(path)


def test_a_taken_port(alone: Cli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = alone.refused("broker", "-c", conf(tmp_path, port=port))
        assert f"listenPort={port}" in told
        assert "another process may have the port" in told
        assert f"listenPort={port}" in alone.refused("namesrv", "--set", f"listenPort={port}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_directory(alone: Cli, tmp_path: Path) -> None:
    store = tmp_path / "locked" / "store"
    store.parent.mkdir(mode=0o500)
    assert str(store.parent) in alone.refused("broker", "-c", conf(tmp_path, store=store))


def test_a_directory_that_is_a_file(alone: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    told = alone.refused("broker", "-c", conf(tmp_path, store=tmp_path / "file" / "store"))
    assert str(tmp_path / "file") in told


@pytest.mark.parametrize("noun", ["broker", "namesrv", "config"])
def test_a_path_that_leads_nowhere(alone: Cli, noun: str) -> None:
    assert "/nowhere/at-all.conf: can't be read" in alone.refused(noun, "-c", "/nowhere/at-all.conf")


def test_a_store_that_is_none(alone: Cli, tmp_path: Path) -> None:
    for command in ("verify", "dump", "rebuild"):
        assert "holds no store" in alone.refused("store", command, str(tmp_path))


@pytest.mark.parametrize("noun", ["broker", "namesrv"])
def test_an_unknown_log_level(alone: Cli, noun: str) -> None:
    assert "LOUD" in alone(noun, "--log-level", "LOUD", code=2).stderr


def test_spark_without_its_packages(alone: Cli, tmp_path: Path) -> None:
    """As after `pip install tandemq`: the extra is named, and how to get it."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(
        "raise ModuleNotFoundError('No module named pyspark', name='pyspark')"
    )
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(bytes(1024))
    bare = Cli(tmp_path, PYTHONPATH=str(tmp_path))
    told = bare.refused("spark", "stats", "--store", str(tmp_path))
    assert "pip install 'tandemq[spark]'" in told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("brokerRol=SLAVE", "brokerRol: no such option; did you mean brokerRole?"),
        ("haSharedkey=secret", "haSharedkey: no such option; did you mean haSharedKey?"),
        ("haMasterAddress=10.0.0.1", "haMasterAddress=10.0.0.1: must be host:port"),
        ("haMasterAddress=10.0.0.1:0", "must be host:port"),
        ("fileReservedTime=0", "fileReservedTime=0: must be from 1 to 10000000 h"),
    ],
)
def test_a_mistake_in_a_file_stops_the_start(alone: Cli, tmp_path: Path, line: str, told: str) -> None:
    path = conf(tmp_path, line + "\n")
    for noun in ("broker", "config"):
        refusal = alone.refused(noun, "-c", path)
        assert "broker.conf:6: " in refusal
        assert told in refusal


def test_lenient_starts_without_what_looks_mistyped(alone: Cli, tmp_path: Path) -> None:
    done = alone("config", "-c", conf(tmp_path, "brokerRol=SLAVE\n"), "--lenient", "--changed")
    assert "note: broker.conf:6: brokerRol: no such option; did you mean brokerRole?" in done.stdout


def test_rocketmqs_own_names_are_only_noted(alone: Cli, tmp_path: Path) -> None:
    """A user's broker.conf is accepted as it is."""
    text = "sendMessageThreadPoolNums=16\nuseReentrantLockWhenPutMessage=true\nmyCompanyPluginPath=/x\n"
    done = alone("config", "-c", conf(tmp_path, text))
    assert "an option of RocketMQ that has no effect" in done.stdout
    assert "myCompanyPluginPath: no such option" in done.stdout


def test_errors_are_json_where_output_is(alone: Cli) -> None:
    for arguments, code, kind in (
        (("topic", "list", "-n", "127.0.0.1:1", "--json"), 1, "RemotingError"),
        (("topic", "list", "--nonsense", "--json"), 2, "Usage"),
        (("config", "--set", "listenPort=x", "--json"), 1, "ConfigError"),
    ):
        done = alone(*arguments, code=code)
        assert done.stdout == ""
        assert json.loads(done.stderr)["error"]["kind"] == kind


def test_debug_shows_the_traceback(alone: Cli) -> None:
    done = alone.run("topic", "list", "-n", "127.0.0.1:1", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
