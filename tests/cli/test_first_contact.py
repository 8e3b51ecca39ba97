"""The binary as a new user meets it: help, doctor, config, errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandemq import __version__
from tandemq.cli.main import NOUNS

ROOT = Path(__file__).resolve().parents[2]


def tandemq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tandemq", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb", **environment},
        timeout=60,
    )


def test_help_names_every_noun() -> None:
    """`tandemq --help` is the map of the program."""
    done = tandemq("--help")
    assert done.returncode == 0
    assert all(noun in done.stdout for noun in NOUNS)


@pytest.mark.parametrize("noun", sorted(set(NOUNS) - {"bench"}))
def test_every_noun_explains_itself(noun: str) -> None:
    """Every noun has a --help that imports and prints."""
    done = tandemq(noun, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_bench_lists_the_benchmarks() -> None:
    """`tandemq bench` in a clone is `./run bench`."""
    done = tandemq("bench")
    assert done.returncode == 0, done.stderr
    assert "store." in done.stdout
    assert "store.append" in {row["name"] for row in json.loads(tandemq("bench", "--json").stdout)}
    assert "Examples: `tandemq bench`" in tandemq("bench", "-h").stdout


def test_an_unknown_noun_is_an_error() -> None:
    done = tandemq("brokr")
    assert done.returncode == 2
    assert "brokr" in done.stderr


def test_config_tells_where_a_value_came_from(tmp_path: Path) -> None:
    """File, flag and default are told apart, and a mistyped name gets a suggestion."""
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=b1\nbrokrId=1\nlistenPort=20911\n")
    flags = ("--set", "brokerRole=SLAVE", "--set", "brokerId=1")
    done = tandemq("config", "-c", str(path), *flags, "--lenient", "--json")
    assert done.returncode == 0, done.stderr
    options = json.loads(done.stdout)
    assert options["brokerName"] == {"value": "b1", "unit": "", "source": "broker.conf:1"}
    assert options["brokerRole"]["source"] == "--set"
    assert options["flushDiskType"]["source"] == "default"
    assert "did you mean brokerId?" in tandemq("config", "-c", str(path), "--lenient").stdout
    assert "did you mean brokerId?" in tandemq("config", "-c", str(path)).stderr


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("listenPort=70000", "listenPort=70000: must be from 0 to 65535"),
        ("listenPort=abc", "must be a whole number"),
        ("brokerRole=BOSS", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("brokrName=x", "did you mean brokerName?"),
    ],
)
def test_a_wrong_option_names_value_and_range(flag: str, told: str) -> None:
    """One sentence on stderr, exit 1, no traceback."""
    done = tandemq("config", "--set", flag)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_reports_every_check(tmp_path: Path) -> None:
    done = tandemq("doctor", "--dir", str(tmp_path), "--json")
    found = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert {"ports", "disk", "open files", "memory", "clock", "java", "address", "access"} == set(found)
    assert all(finding["advice"] for finding in found.values() if finding["verdict"] != "ok")


def test_down_without_a_cluster_says_so(tmp_path: Path) -> None:
    done = tandemq("down", "--dir", str(tmp_path))
    assert done.returncode == 1
    assert "holds no cluster" in done.stderr


def test_no_cluster_to_talk_to_is_one_sentence() -> None:
    """A client command with nobody at the name server's address fails fast and says what to check."""
    done = tandemq("topic", "list", NAMESRV_ADDR="127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3


def test_the_version_is_the_packages() -> None:
    assert tandemq("--version").stdout.strip() == f"tandemq {__version__}"


def test_doctor_tells_what_a_broker_file_leaves_half_open(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    for text, verdict in (("", "warning"), ("haSharedKey=0123456789abcdef\n", "ok")):
        conf.write_text(f"aclEnable=true\naclFile={tmp_path}/plain_acl.yml\n{text}")
        done = tandemq("doctor", "--dir", str(tmp_path), "-c", str(conf), "--json")
        [found] = [finding for finding in json.loads(done.stdout) if finding["check"] == "access"]
        assert found["verdict"] == verdict
        assert ("no haSharedKey" in found["found"]) == (verdict == "warning")
