"""What a session gets when the formats are registered with it; a real one is in tests/spark/test_spark_planning.py."""

import shutil
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from tandemq.spark.planning import push_down
from tandemq.spark.planning.registered import DAEMON_MODULE, READY_DAEMON, prepare, prepare_active_session
from tandemq.spark.source.data_sources import CommitLogSource, CommitLogTable, RocketMQSource


class Conf(dict[str, str]):
    contains = dict.__contains__
    set = dict.__setitem__


def session(conf: Conf, *, master: str = "local[2]", python: str = sys.executable, sent: tuple[str, ...] = ()) -> Any:
    java = SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: conf))
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master=master, pythonExec=python, _python_includes=list(sent), _jsc=java)
    )


@pytest.fixture(autouse=True)
def _rule_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_down, "install", lambda spark: True)


def test_a_local_session_forks_workers_that_are_ready() -> None:
    conf = Conf()
    prepare(session(conf))
    assert conf == {DAEMON_MODULE: READY_DAEMON}


@pytest.mark.parametrize(
    "given", [{"master": "local-cluster[2,1,512]"}, {"master": "spark://h:7077"}, {"sent": ("tandemq.zip",)},
              {"python": shutil.which("sh")}, {"python": "nowhere-at-all"}],
)  # fmt: skip
def test_a_daemon_that_might_not_find_the_package_is_not_named(given: dict[str, Any]) -> None:
    conf = Conf()
    prepare(session(conf, **given))
    assert conf == {}


def test_a_users_daemon_stays() -> None:
    conf = Conf({DAEMON_MODULE: "mine"})
    prepare(session(conf))
    assert conf == {DAEMON_MODULE: "mine"}


def test_a_client_of_spark_connect_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_down, "install", lambda spark: False)
    prepare(object())


def test_a_process_without_a_session_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    prepare_active_session()


@pytest.mark.parametrize("source", [RocketMQSource, CommitLogSource, CommitLogTable])
def test_sparks_own_register_prepares_the_session(source: type[DataSource], monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks the class for its name, in the driver."""
    conf = Conf()
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session(conf))
    source.name()
    assert conf == {DAEMON_MODULE: READY_DAEMON}
