"""One Spark session for all Spark tests: a JVM takes seconds to start."""

import lzma
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tandemq.spark.session import session_builder

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    work = tmp_path_factory.mktemp("spark")
    builder = session_builder("tandemq-tests", master="local[2,4]", work_directory=work)
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def golden_533(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores that RocketMQ 5.3.3 wrote: master-killed, slave-clean, master-clean."""
    root = tmp_path_factory.mktemp("golden533")
    with lzma.open(GOLDEN / "rocketmq-5.3.3" / "stores.tar.xz") as packed, tarfile.open(fileobj=packed) as archive:
        archive.extractall(root, filter="data")
    return root
