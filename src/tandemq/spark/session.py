"""A Spark session with the settings that suit these sources, and why each one is there."""

import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

from tandemq import private
from tandemq.errors import ConfigError
from tandemq.spark.planning.push_down import install
from tandemq.spark.planning.registered import DAEMON_MODULE, READY_DAEMON

_SOCKET_PATH_MAX = 50
"""Of the 108 bytes that Unix allows, Spark's file name takes up to 50."""

_UNCHECKED_ARROW = "ARROW_ENABLE_UNSAFE_MEMORY_ACCESS"
"""Arrow's Java side checks every single access to a column, a tenth of the JVM's time in a scan; Spark never reads
beyond one. It is read when a JVM starts: the driver's, which runs the tasks of a local session, inherits it."""

TUNED: dict[str, str] = {
    # Python workers over a Unix socket instead of TCP: 10-20 % more throughput, 15-30 ms less per task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.buffer.size": "1048576",
    # Half of a micro-batch's floor is its checkpoint files: no checksum sidecars, plain renames (local disks and NFS).
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # What the sink gets at a time; the decoders make batches of their own size (rowsPerBatch).
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.session.timeZone": "UTC",
    # A worker that imports pyarrow on a busy machine may take longer than the default 15 s to say hello.
    "spark.python.authenticate.socketTimeout": "60s",
}


def session_builder(name: str, *, master: str = "", work_directory: Path | None = None) -> Any:
    """Returns a `SparkSession.Builder` with the tuned settings; an empty `master` leaves that to spark-submit."""
    from pyspark.sql import SparkSession

    # Workers must run the interpreter that has this package, not whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    unchecked = os.environ.setdefault(_UNCHECKED_ARROW, "true")
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody outside must reach a local session

    class PlanningBuilder(SparkSession.Builder):
        """Gives sessions that tell the sources which columns and rows a query needs."""

        def getOrCreate(self) -> Any:
            session = super().getOrCreate()
            install(session)
            return session

    builder = PlanningBuilder().appName(name)
    if master:
        builder = builder.master(master)
    if master.startswith("local"):
        # Elsewhere the package may come with --py-files, which a worker finds and its daemon does not.
        builder = builder.config(DAEMON_MODULE, READY_DAEMON)
    for key, value in TUNED.items():
        builder = builder.config(key, value)
    builder = builder.config(f"spark.executorEnv.{_UNCHECKED_ARROW}", unchecked)
    if work_directory is not None:
        private.make_directory(work_directory)
        sockets = _socket_directory(work_directory)
        builder = (
            builder.config("spark.python.unix.domain.socket.dir", str(sockets))
            .config("spark.local.dir", str(work_directory / "local"))
            .config("spark.sql.warehouse.dir", str(work_directory / "warehouse"))
        )
    return builder


def tasks_at_a_time(spark: Any) -> int:
    """Returns about how many tasks run at the same time; 1 where Spark does not tell (Spark Connect)."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        return 1


def _socket_directory(work_directory: Path) -> Path:
    """Returns a place for sockets, which killed drivers leave there; a socket's path must be short."""
    sockets = work_directory / "sockets"
    if len(str(sockets)) > _SOCKET_PATH_MAX:
        name = hashlib.sha256(str(work_directory).encode()).hexdigest()[:12]
        sockets = Path(tempfile.gettempdir()) / f"tandemq-{os.getuid()}-{name}"
    private.make_directory(sockets)
    found = sockets.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{sockets}: it belongs to somebody else, who could listen in; give a shorter work directory")
    sockets.chmod(private.DIRECTORY_MODE)
    return sockets
