"""Noise is dropped, everything else is shown, whole and in order."""

import io
import subprocess
import sys

import pytest

from tandemq.spark.runtime.stderr_filter import Noise, QuietStream

GREETINGS = [
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    'Setting default log level to "WARN".',
    "26/11/16 03:39:42 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...",
]
LEFT_ALONE = [
    "Traceback (most recent call last):",
    '  File "/x/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 264, in manager',
    '  File "/x/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker',
    "BrokenPipeError: [Errno 32] Broken pipe",
]
REAL = [
    "Traceback (most recent call last):",
    '  File "/x/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main',
    "ValueError: the real one",
]
FOREIGN = ["Traceback (most recent call last):", '  File "/mine.py", line 1', "BrokenPipeError: [Errno 32] Broken pipe"]


def shown(*lines: str) -> list[str]:
    noise = Noise()
    return [text for line in lines for text in noise.feed(line)] + noise.rest()


def test_noise_is_dropped_and_the_rest_is_kept() -> None:
    assert shown(*GREETINGS, "tandemq: a note", *LEFT_ALONE, "more") == ["tandemq: a note", "more"]
    assert shown(*REAL) == REAL
    assert shown(*FOREIGN) == FOREIGN


@pytest.mark.parametrize("lines", [REAL[:2], LEFT_ALONE[:3]])
def test_a_traceback_that_breaks_off_is_shown(lines: list[str]) -> None:
    assert shown(*lines) == lines


def test_a_child_writes_through_the_filter_and_we_do_not() -> None:
    code = """
import subprocess, sys, threading
from tandemq.spark.runtime.stderr_filter import filtered_stderr
copy = "import sys; sys.stderr.write(sys.stdin.read())"
with filtered_stderr():
    child = subprocess.Popen([sys.executable, "-c", copy], stdin=subprocess.PIPE)
print("ours", file=sys.stderr, flush=True)
child.communicate(sys.argv[1].encode())
[t.join(20) for t in threading.enumerate() if t.name == "tandemq-spark-stderr"]
"""
    text = "\n".join([*GREETINGS, *LEFT_ALONE, "an error"]) + "\n"
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines() == ["ours", "an error"]


def test_a_stream_holds_back_a_trace_until_it_is_known_to_be_harmless() -> None:
    real = io.StringIO()
    stream = QuietStream(real)
    print("a note", *LEFT_ALONE, sep="\n", file=stream)
    print("begun", end="", file=stream, flush=True)
    assert real.getvalue() == "a note\nbegun"
    print("", *REAL[:2], sep="\n", file=stream, flush=True)
    assert real.getvalue() == "a note\nbegun\n"
    stream.finish()
    assert real.getvalue().splitlines() == ["a note", "begun", *REAL[:2]]


@pytest.mark.parametrize("module", ["tandemq.spark.source.data_sources", "tandemq.spark.sink.writer"])
def test_processes_that_plan_and_commit_are_quiet_as_soon_as_they_know_us(module: str) -> None:
    """Spark ends each after a minute without work; a commit unpickles the writer and nothing else."""
    program = (
        "import importlib.machinery, sys\n"
        "__spec__ = importlib.machinery.ModuleSpec('pyspark.daemon', None)\n"
        f"import {module}\n"
        "print(type(sys.stderr).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "QuietStream"
