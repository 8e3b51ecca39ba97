"""Found by Spark on its own (any top-level `pyspark_*` with a `DefaultSource`): the format `rocketmq`, source and sink.

A module of this kind that fails to import hides all others from Spark, so nothing here may raise: without pyarrow or
numpy there is simply no source. `register(spark)` is for sessions that can't discover it (--py-files, Spark Connect
clients).
"""

try:
    from tandemq.spark.source.data_sources import RocketMQSource as DefaultSource
    from tandemq.spark.source.data_sources import register
except ImportError:  # the `spark` extra is not installed
    pass
else:
    __all__ = ["DefaultSource", "register"]
