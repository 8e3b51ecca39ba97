"""What Spark's JVM and its Python processes say on standard error, without what is noise to people who run a job.

The JVM inherits our standard error when it starts. `filtered_stderr` hands it a pipe instead, and passes on every line
but these: the JVM's and log4j's greetings, and tracebacks of workers whose reader left them on purpose (a LIMIT,
the end of the session), which Spark's daemon prints though nothing is wrong.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_GREETINGS = re.compile(
    r"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting default log level to"
    r"|To adjust logging level use|Setting Spark log level to|.*WARN NativeCodeLoader: Unable to load native-hadoop"
    r"|.*WARN Utils: Your hostname|.*WARN Utils: Set SPARK_LOCAL_IP|Picked up JAVA_TOOL_OPTIONS"
)
_TRACEBACK = "Traceback (most recent call last):"
_HARMLESS = re.compile(r"BrokenPipeError: \[Errno 32\]|ConnectionResetError: \[Errno 104\]")
_OF_SPARK = re.compile(r'File ".*pyspark(\.zip)?/pyspark/(daemon|worker|sql/worker/|sql/streaming/)')
_HELD_MAX = 200
"""Lines of a traceback that are held back at most; a longer one is passed on."""


class Noise:
    """Line by line: what is left to show."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def feed(self, line: str) -> list[str]:
        """`line` without its end; lines to show now, in order."""
        if self._held:
            self._held.append(line)
            if line.startswith((" ", "\t")) and len(self._held) < _HELD_MAX:
                return []
            held, self._held = self._held, []
            return [] if _HARMLESS.match(line) and any(map(_OF_SPARK.search, held)) else held
        if line.startswith(_TRACEBACK):
            self._held = [line]
            return []
        return [] if _GREETINGS.match(line) else [line]

    def rest(self) -> list[str]:
        held, self._held = self._held, []
        return held


@contextmanager
def filtered_stderr() -> Iterator[None]:
    """Processes started inside get a standard error whose noise is dropped for as long as they live."""
    sys.stderr.flush()
    real = os.dup(2)
    reading, writing = os.pipe()
    os.set_inheritable(real, False)
    threading.Thread(target=_pass_on, args=(reading, real), name="tandemq-spark-stderr", daemon=True).start()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)


def _pass_on(reading: int, real: int) -> None:
    noise = Noise()
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines, os.fdopen(real, "w") as out:
        for line in lines:
            for text in noise.feed(line.rstrip("\n")):
                print(text, file=out, flush=True)
        for text in noise.rest():
            print(text, file=out, flush=True)
