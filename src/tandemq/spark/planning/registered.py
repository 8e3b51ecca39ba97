"""What a session gets when our formats are registered with it, besides the formats.

`spark.dataSource.register(RocketMQSource)` asks the class for its name in the driver's own process, the only moment at
which a plain session runs code of ours there. A session that finds the formats by itself never does.
"""

import contextlib
import shutil
import sys
from pathlib import Path
from typing import Any

DAEMON_MODULE = "spark.python.daemon.module"
READY_DAEMON = "tandemq.spark.runtime.ready_daemon"


def prepare(spark: Any) -> None:
    """Lets queries tell the sources what they need, and workers begin at once where that is safe.

    Leaves a client of Spark Connect as it is: what it registers is run by the server.
    """
    from py4j.protocol import Py4JError

    from tandemq.spark.planning.push_down import install  # no worker needs what these import

    if install(spark):
        with contextlib.suppress(Py4JError):  # a Spark that is made in another way starts its workers as it does
            _ready_workers(spark)


def prepare_active_session() -> None:
    """Prepares the session of this process if it is a driver; workers, which have none, go on at once."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is None:
        return
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        prepare(session)


def _ready_workers(spark: Any) -> None:
    """Names our daemon to a running local session, whose driver starts all workers itself; a user's choice stays.

    Only where a worker's Python is this one and finds the package without what was added to the session: the daemon
    starts before that is on its path.
    """
    context = spark.sparkContext
    is_local = context.master == "local" or context.master.startswith("local[")
    if not is_local or context._python_includes or not _is_this_python(context.pythonExec):
        return
    conf = context._jsc.sc().conf()  # the live one: workers are started by it
    if not conf.contains(DAEMON_MODULE):
        conf.set(DAEMON_MODULE, READY_DAEMON)


def _is_this_python(command: str) -> bool:
    """Returns whether a command starts this interpreter of this environment, maybe by another name."""
    found = shutil.which(command)
    if found is None:
        return False
    here, there = Path(sys.executable), Path(found)
    return here.parent == there.parent and here.resolve() == there.resolve()
