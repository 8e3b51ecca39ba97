"""A worker process of Spark is made ready once."""

import importlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandemq.spark.runtime.worker_setup import forget_archives, send_written
from tandemq.spark.source.prefetch import first_at_once

_PROGRAM = """
import gc
from tandemq.spark.runtime.worker_setup import settle
kept, counts = [], [gc.get_freeze_count()]
for _ in range(4):
    settle()
    counts.append(gc.get_freeze_count())
    kept.append([[] for _ in range(100)])
print(*counts)
"""


def test_what_the_first_task_imports_is_set_aside_and_nothing_later() -> None:
    """In a process of its own: what is set aside here would stay so for all tests after this one."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    before, first, second, third, fourth = map(int, done.stdout.split())
    assert before == 0 < first
    assert first + 100 <= second == third == fourth


def test_an_archives_directory_is_not_read_again_and_its_modules_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pyspark does before the first task of a worker costs nothing then."""
    archive = tmp_path / "sent.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("sent_first.py", "")
        file.writestr("sent_second.py", "")
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    importlib.import_module("sent_first")
    assert str(archive) in sys.path_importer_cache
    forget_archives()
    assert str(archive) not in sys.path_importer_cache
    importlib.invalidate_caches()
    importlib.import_module("sent_second")


def test_the_first_batch_is_sent_before_the_second_is_made() -> None:
    """In the frames of pyspark's serializer, which holds the stream."""
    sent, made = io.BytesIO(), []

    def source() -> Iterator[bytes]:
        for number in range(3):
            made.append((number, sent.getvalue()))
            yield b"%d" % number

    def dump_stream(iterator: Iterator[bytes], stream: io.BufferedWriter) -> None:
        for item in iterator:
            stream.write(item)

    stream = io.BufferedWriter(sent)  # type: ignore[arg-type]
    dump_stream(first_at_once(source()), stream)
    assert made == [(0, b""), (1, b"0"), (2, b"0")]
    send_written()  # outside of a task nothing happens
