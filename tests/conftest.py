"""What all tests share: the order in which a whole run takes its files, and a home of their own."""

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

# Commands remember contexts and clusters in the user's home: those of a developer must not meet those of the tests.
_HOME = tempfile.mkdtemp(prefix="tandemq-tests-")
os.environ["XDG_CONFIG_HOME"] = f"{_HOME}/config"
os.environ["XDG_STATE_HOME"] = f"{_HOME}/state"

LONGEST = (
    "test_spark_crashes.py",
    "test_ha_with_rocketmq.py",
    "test_spark_cluster.py",
    "test_store_round_trip.py",
    "test_python_client_failover.py",
    "test_spark_jobs.py",
    "test_java_clients.py",
    "test_verify_real_stores.py",
)
"""Files that take minutes come first: three run at a time, and a long one at the end would run alone."""


def pytest_configure(config: pytest.Config) -> None:
    """Breaks one rule of replication for the whole run, if one is named; see tandemq.sim.mutation."""
    name = os.environ.get("TANDEMQ_MUTANT")
    if name:
        from tandemq.sim.etcd_mutants import ETCD_MUTANTS  # nobody else pays for it
        from tandemq.sim.mutants import MUTANTS

        mutant = next(one for one in (*MUTANTS, *ETCD_MUTANTS) if one.name == name)
        stack = ExitStack()
        stack.enter_context(mutant.active())
        config.add_cleanup(stack.close)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(Path(item.path).name, len(LONGEST)))


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)
