"""A query and a Python data source: `tests/run.py` makes the JVM's class archive from the classes this loads."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.golden import unpack

from tandemq.spark.session import session_builder

with tempfile.TemporaryDirectory() as scratch:
    root = Path(scratch)
    store = unpack("5.3.3", root / "golden") / "master-clean"
    builder = session_builder("warm-up", master="local[2]", work_directory=root / "spark")
    spark = builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
    spark.read.format("rocketmq-commitlog").load(str(store)).groupBy("topic").count().collect()
    spark.stop()
