"""A real standalone cluster with two workers, code shipped with --py-files, a lost executor, and Spark Connect."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from tests.peers.servers import free_ports

from tandemq.spark.columns import default_arrow_schema
from tandemq.spark.options import FileOptions, parse
from tandemq.spark.source.decoder import Decoder
from tandemq.spark.source.physical_order import LogPlanner, wanted_of
from tandemq.spark.source.scan import scan
from tandemq.testing.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
HOME = Path(pyspark.__file__).parent
HERE = Path(__file__).parent
SOURCES = HERE.parent.parent / "src"
HIDE = 'mount -t tmpfs none "$1" && shift && exec "$@"'


class Cluster:
    """Master and workers from the pip package, each a process group of its own."""

    def __init__(self, directory: Path, python: str, hidden: Path | None = None) -> None:
        """`hidden`: a directory that no worker sees; each has a mount namespace and something else in its place."""
        self._hidden = hidden
        self.processes: list[subprocess.Popen[bytes]] = []
        port, self._web = free_ports(2)
        self.master = f"spark://127.0.0.1:{port}"
        self.environment = {
            **os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m",
        }  # fmt: skip
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(self._web))
        for number in (1, 2):
            work = directory / f"work{number}"
            work.mkdir()
            self._start(
                "worker.Worker", "--host", "127.0.0.1", "--webui-port", str(*free_ports()), "--cores", "1", "--memory",
                "1g", "--work-dir", str(work), self.master,
            )  # fmt: skip
        self._await_workers()

    def _start(self, kind: str, *arguments: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        if self._hidden is not None and kind.startswith("worker"):
            command = ["unshare", "--mount", "sh", "-c", HIDE, "sh", str(self._hidden), *command]
        self.processes.append(
            subprocess.Popen(
                command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )  # fmt: skip

    def _await_workers(self) -> None:
        def are_two() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as reply:
                return bool(json.load(reply)["aliveworkers"] == 2)

        wait_until(are_two, "two workers to register", seconds=180, ignoring=(OSError, ValueError))

    def stop(self) -> None:
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with the third-party packages but without tandemq: what an executor has before code is shipped."""
    packages = HOME.parent
    path = tmp_path_factory.mktemp("python") / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{packages}" exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    assert subprocess.run([str(path), "-c", "import tandemq"], capture_output=True, cwd="/").returncode
    subprocess.run([str(path), "-c", "import pyarrow, numpy, pyspark"], check=True)
    return str(path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, bare_python: str) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("cluster"), bare_python)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as one file for --py-files."""
    return Path(shutil.make_archive(str(tmp_path_factory.mktemp("zip") / "tandemq"), "zip", SOURCES, "tandemq"))


def expected(store: Path) -> dict[str, int]:
    """The answer, without Spark."""
    options = parse(FileOptions, {"path": str(store)})
    planner = LogPlanner(options)
    (found,) = planner.stores()
    first, end, segments = planner.bounds(found)
    decoder = Decoder(default_arrow_schema(["physical_offset", "body"]), wanted=wanted_of(options))
    sizes: list[int] = []
    for piece in planner.ranges(found, segments, first, end):
        for batch in scan(piece, decoder, 10_000):
            sizes += [len(body) for body in batch.column("body").to_pylist()]
    return {"messages": len(sizes), "bytes": sum(sizes), "places": len(sizes)}


def submit(cluster: Cluster, package: Path, store: Path, *flags: str) -> subprocess.Popen[str]:
    """As users do: spark-submit --py-files, discovery impossible, so the driver registers the formats."""
    command = [str(HOME / "bin" / "spark-submit"), "--master", cluster.master, "--py-files", str(package)]
    command += [str(HERE / "cluster_driver.py"), cluster.master, str(store), "register", *flags]
    return subprocess.Popen(
        command, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def result_of(driver: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = driver.communicate(timeout=400)
    assert driver.returncode == 0, err[-3000:]
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return {key: value for line in lines for key, value in json.loads(line).items()}


def test_code_shipped_with_py_files_runs_on_two_workers(cluster: Cluster, package: Path, golden_533: Path) -> None:
    """Executors have nothing but the third-party packages and what spark-submit sends them."""
    store = golden_533 / "slave-clean"
    assert result_of(submit(cluster, package, store)) == expected(store)


def test_a_killed_executor_changes_no_answer(cluster: Cluster, package: Path, golden_533: Path) -> None:
    """SIGKILL to one executor's JVM in mid-query: its tasks run again elsewhere."""
    store = golden_533 / "slave-clean"
    driver = submit(cluster, package, store, "slow")
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith("started"):
            break
    executor = await_executor(cluster)
    os.kill(executor, signal.SIGKILL)
    assert result_of(driver) == expected(store)


def await_executor(cluster: Cluster) -> int:
    """The process id of an executor that our workers started."""
    workers = {process.pid for process in cluster.processes[1:]}

    def found() -> int:
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rsplit(")", 1)[1].split()
                command = (status.parent / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[2]) in workers and b"CoarseGrainedExecutorBackend" in command:
                return int(status.parent.name)
        return 0

    return wait_until(found, "an executor to start", seconds=120)


def test_spark_connect_finds_the_formats_batch_and_stream(golden_533: Path) -> None:
    """A remote session against a Connect server that has the package: discovered, nothing registered."""
    store = golden_533 / "slave-clean"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(HERE / "cluster_driver.py"), "connect", str(store)]
    driver = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wanted = expected(store)
    assert result_of(driver) == {**wanted, "streamed": wanted["messages"]}


def test_workers_that_share_no_disk_with_the_driver(
    tmp_path: Path, bare_python: str, package: Path, topics: Any
) -> None:
    """Topics are read and written without a path that both see."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here: unshare --mount is not allowed")
    mine, workers = tmp_path / "mine", tmp_path / "workers"
    mine.mkdir()
    workers.mkdir()
    separate = Cluster(workers, bare_python, hidden=mine)
    try:
        command = [str(HOME / "bin" / "spark-submit"), "--master", separate.master, "--py-files", str(package)]
        command += [str(HERE / "separate_driver.py"), separate.master, topics.nameserver, str(mine / "driver.txt")]
        driver = subprocess.Popen(
            command, env=separate.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        found = result_of(driver)
    finally:
        separate.stop()
    assert (found["count"], found["total"]) == (1999, sum(range(2000)) - 7)
    assert not found["sees"]


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Any]:
    """A cluster of ours with two topics."""
    from tests.spark.conftest import ThreadedCluster

    running = ThreadedCluster(tmp_path / "brokers")
    broker = running.add_broker()
    for name in ("in", "out"):
        running.create_topic(broker, name, 2)
    yield running
    running.close()
