"""What others wrote moves no cursor, what is stored is nobody else's to read, and nothing is installed unasked."""

import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.backup.stores import opened, put

from tandemq import private
from tandemq.backup.restore import restore
from tandemq.backup.take import back_up
from tandemq.backup.target import DirectoryTarget
from tandemq.broker.config import BrokerConfig
from tandemq.cli import consume, failures, message, render
from tandemq.errors import ClientError, ConfigError
from tandemq.namesrv.config import NamesrvConfig
from tandemq.printable import printable_json
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.settings import settings_of
from tandemq.sim.clock import ManualClock
from tandemq.spark import session
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore

ROOT = Path(__file__).parents[2]
EVIL = "\x1b]0;owned\x07\x9b2J\u202egnp\ud800"


def hostile_message(body: bytes) -> Any:
    return SimpleNamespace(
        broker_name="b", queue_id=0, queue_offset=1, tags="\x1b[31m", keys=["\x9b"], body=body, store_timestamp=1
    )


def assert_harmless(text: str) -> None:
    assert not set(text) & set("\x1b\x07\x9b\u202e\ud800"), ascii(text)


def test_names_and_bodies_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": EVIL, "list": [EVIL], "map": {EVIL: EVIL}, "body": EVIL}
    render.show([row], {key: key for key in row}, as_json=False)
    render.show_one(row, as_json=False)
    consume._print(hostile_message(EVIL.encode("utf-8", "surrogatepass")), as_json=False)
    render.print_json([row])
    said = capsys.readouterr().out
    assert_harmless(said)
    assert "owned" in said


def test_errors_and_notes_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    render.note(EVIL)
    failures.report(ClientError(f"broker says {EVIL}"), as_json=False)
    assert_harmless(capsys.readouterr().err)


def test_json_stays_json() -> None:
    text = printable_json(json.dumps({"a": "\x9b\u202eü😀"}, ensure_ascii=False))
    assert json.loads(text) == {"a": "\x9b\u202eü😀"}
    assert "ü😀" in text


def test_raw_prints_the_bytes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    body = b"\x1b[31m\xff\x00"
    consume._print(hostile_message(body), as_json=False, raw=True)
    message._show(hostile_message(body), as_json=False, raw=True)
    assert capfdbinary.readouterr().out == (body + b"\n") * 2


def test_files_and_directories_of_a_store_are_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        root = tmp_path / "deep" / "store"
        store = MessageStore.open(root, StoreConfig(commit_log_segment_size=1 << 16, index_slots=64, index_entries=64))
        store.append("T", 0, 0, 0, 1, bytes(8), 0, 0, b"body", b"KEYS\x01k\x02")
        store.dispatch()
        store.close()
    finally:
        os.umask(before)
    found = [path for path in (root.parent, root, *root.rglob("*")) if not path.is_symlink()]
    assert len(found) > 8
    open_to_others = [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert open_to_others == []


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(*roots: Path) -> list[Path]:
    found = [path for root in roots for path in (root, *root.rglob("*")) if not path.is_symlink()]
    assert len(found) > 3
    return [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.usefixtures("usual_umask")
def test_a_backup_and_what_is_made_of_it_are_the_owners_alone(tmp_path: Path) -> None:
    """They hold the messages and, in auth.json, the passwords; everybody could read them."""
    place, again = tmp_path / "deep" / "backup", tmp_path / "again" / "store"
    store = opened(tmp_path / "store")
    put(store, 20)
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    (tmp_path / "store" / "config" / "auth.json").write_text("{}")
    target = DirectoryTarget(place)
    back_up(tmp_path / "store", target, ManualClock())
    target.close()
    store.close()
    restore(DirectoryTarget(place), again)
    assert (again / "config" / "auth.json").exists()
    assert open_to_others(place.parent, again.parent) == []


@pytest.mark.usefixtures("usual_umask")
def test_a_cluster_of_up_keeps_its_files_to_itself(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "cluster"
    private.make_directory(directory)
    (directory / "node.conf").write_text("of the version before")
    private.write_text(directory / "node.conf", "haSharedKey=secret")
    (directory / "empty").touch(0o600)
    assert open_to_others(directory.parent) == []


@pytest.mark.usefixtures("usual_umask")
def test_sparks_scratch_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for sockets below /tmp had a name that others could guess, and make first."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    deep = tmp_path / ("d" * 60)
    found = session._socket_directory(deep)
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    found.chmod(0o777)
    assert stat.S_IMODE(session._socket_directory(deep).stat().st_mode) == 0o700
    found.rmdir()
    found.symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(ConfigError, match="somebody else"):
        session._socket_directory(deep)


def test_no_file_is_made_for_everybody() -> None:
    """But for a program, which etcd's wheel is, that others may run."""
    found = [
        path.name for path in (ROOT / "src").rglob("*.py") if re.search(r"0o6[46][46]|0o7[57][57]", path.read_text())
    ]
    assert found == ["local_etcd.py"]


@pytest.mark.parametrize("unit", sorted((ROOT / "deploy" / "systemd").glob("*.service")), ids=lambda path: path.name)
def test_units_write_for_their_user_alone(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    assert {"UMask=0077", "NoNewPrivileges=yes", "ProtectSystem=strict"} <= set(lines)


def shell(directory: Path, yes: str, answer: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs `install_package` of ./run on a terminal, with an apt-get that only says what it was asked for."""
    apt = directory / "apt-get"
    apt.write_text('#!/bin/sh\necho "apt-get was called: $*" >&2\n')
    apt.chmod(0o755)
    text = (ROOT / "run").read_text()
    part = text[text.index("say()") : text.index("find_python()")]
    program = directory / "program"
    program.write_text(f"set -eu\nyes={yes}\n{part}\ninstall_package curl\n")
    plain = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        ["script", "-qec", f"sh {program}", "/dev/null"],  # gives it a terminal, so that there is somebody to ask
        input=answer, capture_output=True, text=True, timeout=30, check=False,
        env={**plain, **environment, "PATH": f"{directory}:{os.environ['PATH']}"},
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("script") is None, reason="needs util-linux's script to play a terminal")
@pytest.mark.parametrize(
    ("yes", "answer", "environment", "installs"),
    [("", "n\n", {}, False), ("", "y\n", {}, True), ("1", "", {}, True), ("", "", {"CI": "true"}, True)],
)
def test_run_says_and_asks_before_it_installs_as_root(
    tmp_path: Path, yes: str, answer: str, environment: dict[str, str], installs: bool
) -> None:
    done = shell(tmp_path, yes, answer, environment)
    assert "about to install system packages as root: apt-get install curl" in done.stdout
    assert ("go on? [y/N]" in done.stdout) == (not yes and not environment)
    assert (done.returncode == 0) == installs


@pytest.mark.parametrize("config", [BrokerConfig, StoreConfig, RemotingConfig, ReplicationConfig, NamesrvConfig])
def test_numbers_that_change_at_run_time_have_an_upper_bound(config: type) -> None:
    """A number that an administrator's account sets from afar stops no server and starves none."""
    unbounded = [
        described.key
        for field, described in settings_of(config).values()
        if described.tunable and type(field.default) in (int, float) and described.maximum is None
    ]
    assert unbounded == []
