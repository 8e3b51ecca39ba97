"""One life of a driver that is killed: archives a store and streams it into a topic until both have caught up.

    python -m bench.spark_kills_driver STORE LAKE CHECKPOINTS NAMESERVER TOPIC BYTES_PER_TRIGGER

Killed at any moment with its JVM and workers and started again; everything it needs to remember is in CHECKPOINTS.
"""

import sys
import threading
from pathlib import Path


def main(store: str, lake: str, checkpoints: str, nameserver: str, topic: str, bytes_per_trigger: str) -> None:
    from tandemq.spark.jobs.archive import ArchivePlan, archive
    from tandemq.spark.runtime.query_start import started
    from tandemq.spark.session import session_builder

    work = Path(checkpoints) / "work"
    # A task is tried four times, as on a cluster: a killed worker is the task's failure, not the query's.
    builder = session_builder("kills", master="local[2,4]", work_directory=work).config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "700m").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    reader = spark.readStream.format("rocketmq-commitlog").option("startingOffsets", "earliest")
    rows = reader.option("maxBytesPerTrigger", bytes_per_trigger).load(store)
    rows = rows.select("body", "keys", "tags", "properties")
    writer = rows.writeStream.format("rocketmq").option("nameserver", nameserver).option("topic", topic)
    writer = writer.option("delivery", "exactly_once").option("checkpointLocation", f"{checkpoints}/sink")
    failed: list[BaseException] = []

    def run_archive() -> None:
        options = {"path": store, "maxBytesPerTrigger": bytes_per_trigger}
        try:
            archive(spark, ArchivePlan(lake, f"{checkpoints}/archive", "rocketmq-commitlog", options))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run_archive)
    thread.start()
    started(writer.option("batchBytes", "20000").trigger(availableNow=True)).awaitTermination()
    thread.join()
    if failed:
        raise failed[0]
    spark.stop()
    print("caught up", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
