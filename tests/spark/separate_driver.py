"""A driver for workers that share no disk with it: topics in and out, and whether they see a file of its own.

separate_driver.py MASTER NAMESERVER FILE
"""

import json
import sys
from pathlib import Path


def main(master: str, nameserver: str, file: str) -> None:
    from tandemq.spark.session import session_builder
    from tandemq.spark.source import register

    builder = session_builder("separate", master=master)
    for key, value in {
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
        "spark.executor.memory": "700m", "spark.executor.cores": "1",
    }.items():  # fmt: skip
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)

    def topic(name: str) -> object:
        return spark.read.format("rocketmq").option("nameserver", nameserver).option("subscribe", name).load()

    rows = spark.range(0, 2000, 1, 4).selectExpr("cast(id as string) as body", "concat('k', id) as keys")
    writer = rows.write.format("rocketmq").option("nameserver", nameserver).option("topic", "in")
    writer.option("delivery", "exactly_once").option("sinkId", "separate").mode("append").save()
    df = topic("in").where("keys <> 'k7'").select("body", "keys")  # type: ignore[attr-defined]
    df.write.format("rocketmq").option("nameserver", nameserver).option("topic", "out").mode("append").save()
    found = topic("out").selectExpr("count(distinct keys)", "sum(cast(body as string))")  # type: ignore[attr-defined]
    count, total = found.first()
    own = Path(file)
    own.write_text("only the driver sees this")
    hidden = spark.range(2).rdd.map(lambda _: own.exists()).collect()
    print(json.dumps({"count": count, "total": int(total), "sees": any(hidden)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
