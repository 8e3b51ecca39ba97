"""Starting a streaming query on a machine that may be busy.

Spark gives the Python process of a streaming source ten seconds to report, a limit that no setting raises; on an
overloaded machine the process is later and the query dies before it has done anything. Then it is started again.
"""

from typing import Any

from tandemq.spark.runtime.task_log import note

_STARTS_MAX = 5
_TOO_LATE = "Python worker failed to connect back"
_POLL_SECONDS = 0.2


def started(writer: Any) -> Any:
    """Calls `writer.start()`; returns when the query has done its first micro-batch or has ended."""
    for start in range(1, _STARTS_MAX + 1):
        query = writer.start()
        try:
            while query.isActive and query.lastProgress is None:
                query.awaitTermination(_POLL_SECONDS)
            if not query.isActive:
                query.awaitTermination(_POLL_SECONDS)  # raises what ended it between two looks
            return query
        except Exception as error:
            if _TOO_LATE not in str(error) or start == _STARTS_MAX:
                raise
            note(f"the machine is busy: a Python process took over 10 s to start; starting the query again ({start})")
    raise AssertionError("unreachable")
