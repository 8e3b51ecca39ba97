"""Workers are forked from a process that has imported what they need, and only if nothing is lost by the fork."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandemq.spark.runtime import ready_daemon
from tandemq.spark.runtime.ready_daemon import threads_in_the_way


def test_threads_that_a_fork_would_lose_are_named(tmp_path: Path) -> None:
    for number, name in ((os.getpid(), "python"), (1, "jemalloc_bg_thd"), (2, "worker")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_text(f"{name}\n")
    assert threads_in_the_way(tmp_path) == ["worker"]
    assert threads_in_the_way(tmp_path / "nowhere") == []


def test_a_thread_in_the_way_hands_over_to_pysparks_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []

    def replaced(_: str, arguments: list[str]) -> None:
        called.append(arguments)
        raise SystemExit

    monkeypatch.setattr(ready_daemon, "prepare", lambda worker: None)
    monkeypatch.setattr(ready_daemon, "_LOOKS", 0)
    monkeypatch.setattr(ready_daemon, "threads_in_the_way", lambda: ["worker"])
    monkeypatch.setattr(os, "execv", replaced)
    monkeypatch.setattr(sys, "argv", ["ready_daemon", "pyspark.worker"])
    with pytest.raises(SystemExit):
        ready_daemon.main()
    assert called == [[sys.executable, "-m", "pyspark.daemon", "pyspark.worker"]]


def test_every_worker_that_is_prepared_exists() -> None:
    for module in ready_daemon.PREPARED:
        assert importlib.util.find_spec(module) is not None


@pytest.mark.slow
def test_what_is_prepared_starts_no_thread_and_leaves_nothing_to_import() -> None:
    code = (
        "import sys\n"
        "from tandemq.spark.runtime.ready_daemon import prepare, threads_in_the_way\n"
        "prepare('pyspark.worker')\n"
        "before = set(sys.modules)\n"
        "import tandemq.spark.source.data_sources, tandemq.spark.source.physical_order, pyarrow as pa\n"
        "pa.array([1])\n"
        "print(len(set(sys.modules) - before), 'pandas' in sys.modules)\n"
        "from tandemq.testing.waiting import wait_until\n"
        "wait_until(lambda: not threads_in_the_way(), 'no thread', seconds=20)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0 True"
