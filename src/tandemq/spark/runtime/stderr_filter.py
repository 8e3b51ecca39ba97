"""What Spark's JVM and its Python processes say on standard error, without what is noise to people who run a job.

The JVM inherits our standard error when it starts. `filtered_stderr` hands it a pipe instead, and passes on every line
but these: the JVM's and log4j's greetings, and tracebacks of workers whose reader left them on purpose (a LIMIT,
the end of the session), which Spark's daemon prints though nothing is wrong.
"""

import atexit
import io
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_GREETINGS = re.compile(
    r"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting default log level to"
    r"|To adjust logging level use|Setting Spark log level to|.*WARN NativeCodeLoader: Unable to load native-hadoop"
    r"|.*WARN Utils: Your hostname|.*WARN Utils: Set SPARK_LOCAL_IP|Picked up JAVA_TOOL_OPTIONS"
)
_TRACEBACK = "Traceback (most recent call last):"
_HARMLESS = re.compile(r"BrokenPipeError: \[Errno 32\]|ConnectionResetError: \[Errno 104\]")
_OF_SPARK = re.compile(r'File ".*pyspark(\.zip)?/pyspark/(daemon|worker|sql/worker/|sql/streaming/)')
_DAEMONS = ("pyspark.daemon", "tandemq.spark.runtime.ready_daemon")
"""What a worker process was forked from."""
_HELD_MAX = 200
"""Lines of a traceback that are held back at most; a longer one is passed on."""


class Noise:
    """Line by line: what is left to show."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def feed(self, line: str) -> list[str]:
        """Takes a `line` without its end; returns the lines to show now, in order."""
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

    @property
    def holds_back(self) -> bool:
        """Whether a traceback has begun that may turn out to be harmless."""
        return bool(self._held)

    def rest(self) -> list[str]:
        held, self._held = self._held, []
        return held


class QuietStream(io.TextIOBase):
    """A standard error of one process that leaves out the same noise."""

    def __init__(self, real: TextIO) -> None:
        self._real = real
        self._noise = Noise()
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._show(self._noise.feed(line))
        return len(text)

    def flush(self) -> None:
        if self._begun and not self._noise.holds_back:
            self._real.write(self._begun)
            self._begun = ""
        self._real.flush()

    def finish(self) -> None:
        """Shows what was held back or begun: nothing may be lost when a process ends."""
        self._show(self._noise.rest())
        self._real.write(self._begun)
        self._begun = ""
        self._real.flush()

    def fileno(self) -> int:
        return self._real.fileno()

    def isatty(self) -> bool:
        return self._real.isatty()

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            self._real.write(line + "\n")


def quiet_stderr() -> None:
    """Keeps this process silent about a reader that left it: a LIMIT ends every worker so, and pyspark prints that."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name in _DAEMONS and not isinstance(sys.stderr, QuietStream):
        stream = QuietStream(sys.stderr)
        atexit.register(stream.finish)
        sys.stderr = stream


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
