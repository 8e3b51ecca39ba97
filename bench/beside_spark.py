"""A query that reads an observer all the time and keeps what it read; started anew by its checkpoint when it fails.

    beside_spark.py NAMESRV OBSERVER TOPIC DIRECTORY

Ends when DIRECTORY/stop is there and everything was read; prints rows and different messages as JSON.
"""

import json
import sys
import time
from pathlib import Path


def main(namesrv: str, observer: str, topic: str, directory: str) -> None:
    from tandemq.spark.runtime.query_start import started
    from tandemq.spark.session import session_builder

    root = Path(directory) / "spark"
    builder = session_builder("beside", master="local[1]", work_directory=root / "work")
    spark = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "700m").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    reader = spark.readStream.format("rocketmq").option("nameserver", namesrv).option("readFrom", observer)
    rows = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    rows = rows.select("queue_id", "queue_offset", "keys")
    writer = rows.writeStream.format("parquet").option("path", str(root / "rows"))
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    failures = batches = 0
    is_over = False
    while not is_over:
        is_over = (Path(directory) / "stop").exists()  # asked before the last run, which so reads everything
        try:
            started(writer.trigger(availableNow=True)).awaitTermination()
            batches += 1
        except Exception as error:
            print(f"failed: {error}", file=sys.stderr)
            failures += 1
            is_over = False
            time.sleep(0.5)
    read = spark.read.parquet(str(root / "rows"))
    counts = {"rows": read.count(), "different": read.distinct().count(), "failures": failures, "runs": batches}
    print(json.dumps(counts), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
