"""Every option of the sources and the sink: name, meaning, range; parsed and checked once, on the driver.

Names are those of Spark's Kafka connector where it has the option. A wrong or unknown option is an error that names it,
its value and what is accepted, never a silent default. Planning and reading get the typed objects, not the option map.
"""

from tandemq.spark.options.connect import ConnectOptions
from tandemq.spark.options.files import FileOptions, Order, UpTo
from tandemq.spark.options.parsing import described, parse
from tandemq.spark.options.pull import PullOptions
from tandemq.spark.options.select import Mode, Prefetch, SchemaKind, SelectOptions, WithoutMessages
from tandemq.spark.options.sink import Compression, Delivery, SinkOptions
from tandemq.spark.options.texts import EARLIEST, LATEST, milliseconds, offsets_of

__all__ = [
    "EARLIEST", "LATEST", "Compression", "ConnectOptions", "Delivery", "FileOptions", "Mode", "Order", "Prefetch",
    "PullOptions", "SchemaKind", "SelectOptions", "SinkOptions", "UpTo", "WithoutMessages", "described",
    "milliseconds", "offsets_of", "parse",
]  # fmt: skip
