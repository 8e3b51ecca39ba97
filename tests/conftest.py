"""What all tests share: the order in which a whole run takes its files."""

from pathlib import Path

import pytest

LONGEST = (
    "test_spark_crashes.py",
    "test_ha_with_rocketmq.py",
    "test_spark_cluster.py",
    "test_store_round_trip.py",
    "test_python_client_failover.py",
    "test_spark_jobs.py",
    "test_java_clients.py",
)
"""Files that take minutes come first: three run at a time, and a long one at the end would run alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(Path(item.path).name, len(LONGEST)))
