"""The two sources that Spark reads: live topics (`rocketmq`) and the files of a store (`rocketmq-commitlog`)."""

from typing import Any


def register(spark: Any) -> None:
    """Registers both formats with a session that cannot discover them (`--py-files`, Spark Connect clients)."""
    from tandemq.spark.source.data_sources import register

    register(spark)
