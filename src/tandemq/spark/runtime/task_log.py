"""What an executor or the driver's planner has to say: one line on stderr, where Spark's task logs are."""

import sys
from collections.abc import Iterable


def note(text: str, examples: Iterable[str] = ()) -> None:
    """Writes to the executor's stderr, never into the data."""
    print("tandemq: " + "; ".join([text, *examples]), file=sys.stderr, flush=True)
