"""Found by Spark on its own (any top-level `pyspark_*` with a `DefaultSource`): the format `rocketmq-commitlog`.

A module of this kind that fails to import hides all others from Spark, so nothing here may raise: without pyarrow or
numpy there is simply no source.
"""

try:
    from tandemq.spark.source.data_sources import CommitLogSource as DefaultSource
except ImportError:  # the `spark` extra is not installed
    pass
else:
    __all__ = ["DefaultSource"]
