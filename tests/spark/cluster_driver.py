"""A driver for the cluster tests: reads a store somewhere else than local[*] and prints what it found as JSON.

cluster_driver.py MASTER STORE [register] [slow]      MASTER: spark://… or connect
"""

import json
import sys


def main(master: str, store: str, *flags: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("cluster")
    if master == "connect":
        spark = builder.remote("local[2]").getOrCreate()
    else:
        for key, value in {
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
            "spark.executor.memory": "700m", "spark.executor.cores": "1", "spark.task.maxFailures": "8",
        }.items():  # fmt: skip
            builder = builder.config(key, value)
        spark = builder.master(master).getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
    if "register" in flags:
        from tandemq.spark.source.data_sources import register

        register(spark)
    reader = spark.read.format("rocketmq-commitlog").option("maxBytesPerPartition", "65536")
    df = reader.load(store)
    print("started", flush=True)
    if "slow" in flags:
        # Long enough to lose an executor in mid-query.
        rounds = [summary(df) for _ in range(6)]
        assert all(found == rounds[0] for found in rounds), rounds
        print(json.dumps(rounds[0]), flush=True)
    else:
        print(json.dumps(summary(df)), flush=True)
    if master == "connect":
        query = (
            spark.readStream.format("rocketmq-commitlog").option("startingOffsets", "earliest").load(store)
            .select("topic").writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        print(json.dumps({"streamed": spark.table("seen").count()}), flush=True)
    spark.stop()


def summary(df: object) -> dict[str, int]:
    row = df.selectExpr(  # type: ignore[attr-defined]
        "count(*) as messages", "sum(length(body)) as bytes", "count(distinct physical_offset) as places"
    ).collect()[0]
    return {"messages": row["messages"], "bytes": row["bytes"], "places": row["places"]}


if __name__ == "__main__":
    main(*sys.argv[1:])
