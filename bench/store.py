"""The log store alone: append, dispatch, many queues, group commit, recovery; beside what the machine can do.

    ./run bench store               or: python -m bench.store [--scale 0.1]     one line and one JSON object a benchmark

Times per message are medians over small runs, so that a busy machine shifts them little.
"""

import contextlib
import functools
import itertools
import json
import mmap
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench import frame
from bench.frame import Benchmark, Figure, Run
from tandemq.formats.crc import crc32
from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.message_store import MessageStore

BODY = bytes(range(256)) * 4
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
RECORD_SIZE = 91 + len(BODY) + 10 + 70
RUN = 500
"""Messages timed as one sample."""


def properties(number: int) -> bytes:
    """What a Java producer sends: a unique key whose counter runs, a tag."""
    key = b"0A000001%04X18B4AAC2%08X%04X" % (1234, number // 50, number & 0xFFFF)
    return b"UNIQ_KEY\x01" + key + b"\x02WAIT\x01true\x02TAGS\x01TagA\x02"


@functools.cache
def topic_names(count: int) -> list[str]:
    return [f"Bench{n:05d}" for n in range(count)]


def put(store: MessageStore, number: int, texts: list[bytes], queues: int = 8, topics: int = 1) -> float:
    """Appends one run; seconds per message."""
    append, names = store.append, topic_names(topics)
    start = time.perf_counter()
    for i, text in enumerate(texts):
        place = number + i
        append(names[place % topics], place // topics % queues, 0, 0, 1_700_000_000_000, HOST, 0, 0, BODY, text)
    return (time.perf_counter() - start) / len(texts)


# -- append and dispatch


def append_ours(run: Run) -> dict[str, float]:
    with scratch(run) as directory:
        store = MessageStore.open(directory, StoreConfig())
        appends, dispatches = [], []
        for number in range(0, run.count(100_000, 2000), RUN):
            texts = [properties(number + i) for i in range(RUN)]
            appends.append(put(store, number, texts))
            start = time.perf_counter()
            store._dispatcher.run(store.appended, 1 << 40)
            dispatches.append((time.perf_counter() - start) / RUN)
        calls = [dispatch_one(store, properties(number)) for number in range(run.count(5_000, 200))]
        store.abandon()
    return {
        "append": statistics.median(appends) * 1e6,
        "dispatch": statistics.median(dispatches) * 1e6,
        "call": statistics.median(calls) * 1e6,
    }


def dispatch_one(store: MessageStore, text: bytes) -> float:
    """What a quiet broker does for every message: seconds of one whole `dispatch` call."""
    put(store, 0, [text])
    start = time.perf_counter()
    store.dispatch()
    return time.perf_counter() - start


def append_ceiling(run: Run) -> dict[str, float]:
    """The same bytes copied into a mapped file and checksummed: no Python around it but the loop."""
    record = BODY + bytes(RECORD_SIZE - len(BODY))
    count = run.count(100_000, 2000)
    with scratch(run) as directory, open(directory / "file", "w+b") as file:
        file.truncate(RECORD_SIZE * RUN * (count // RUN))
        view = memoryview(mmap.mmap(file.fileno(), 0))
        samples, at = [], 0
        for _ in range(count // RUN):
            start = time.perf_counter()
            for _ in range(RUN):
                view[at : at + RECORD_SIZE] = record
                crc32(BODY)
                at += RECORD_SIZE
            samples.append((time.perf_counter() - start) / RUN)
    return {"append": statistics.median(samples) * 1e6}


def append_raw_write(run: Run) -> dict[str, float]:
    """write(2) of the same size."""
    record = bytes(RECORD_SIZE)
    with scratch(run) as directory, open(directory / "file", "wb", buffering=0) as file:
        samples = []
        for _ in range(run.count(100_000, 2000) // RUN):
            start = time.perf_counter()
            for _ in range(RUN):
                file.write(record)
            samples.append((time.perf_counter() - start) / RUN)
    return {"append": statistics.median(samples) * 1e6}


# -- many queues


class Filled:
    """A store whose queues have a message each, as files too, and what it took to add more to them."""

    def __init__(self, directory: Path, topics: int, queues: int) -> None:
        self.store = MessageStore.open(directory, StoreConfig(flush_views_interval_ms=3_600_000))
        self._topics, self._queues = topics, queues
        self._runs: list[float] = []
        for number in range(0, topics * queues, RUN):
            self.add(number)
        self.store._views.write_tails()
        self._runs.clear()

    def add(self, number: int) -> None:
        texts = [properties(number + i) for i in range(RUN)]
        start = time.process_time()
        put(self.store, number, texts, self._queues, self._topics)
        self.store.dispatch(1 << 40)
        self._runs.append((time.process_time() - start) / RUN)

    def microseconds(self) -> float:
        """Per message, with its share of writing the queue files."""
        start = time.process_time()
        self.store._views.write_tails()
        files = (time.process_time() - start) / (len(self._runs) * RUN)
        return (statistics.median(self._runs) + files) * 1e6


def queues_ours(run: Run) -> dict[str, float]:
    """Append, dispatch and writing the queue files, one queue and ten thousand in turn."""
    with scratch(run) as directory:
        one = Filled(directory / "one", 1, 1)
        many = Filled(directory / "many", run.count(1250, 20), 8)
        for number in range(0, run.count(200_000, 4000), RUN):
            one.add(number)
            many.add(number)
        figures = {"one": one.microseconds(), "many": many.microseconds()}
        fds = float(len(os.listdir("/proc/self/fd")))
        one.store.abandon()
        many.store.abandon()
    return {**figures, "ratio": figures["many"] / figures["one"], "fds": fds}


# -- group commit


def flush_ours(run: Run) -> dict[str, float]:
    """SYNC_FLUSH with 64 sends in flight: messages acknowledged as durable, and fdatasync calls that took."""
    config = StoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH, index_enable=False)
    with scratch(run) as directory:
        store = MessageStore.open(directory, config)
        store.start()
        room = threading.Semaphore(64)
        count = run.count(20_000, 200)
        start = time.perf_counter()
        for number in range(count):
            room.acquire()
            store.append("T", 0, 0, 0, 1, HOST, 0, 0, BODY, properties(number))
            store.when_flushed(store.appended, lambda error: room.release())
        for _ in range(64):
            room.acquire()
        rate = count / (time.perf_counter() - start)
        store.close()
    return {"durable": rate}


def flush_ceiling(run: Run) -> dict[str, float]:
    """write + fdatasync of 64 records at a time on the same disk."""
    with scratch(run) as directory, open(directory / "file", "wb", buffering=0) as file:
        count = run.count(20_000, 200)
        os.posix_fallocate(file.fileno(), 0, RECORD_SIZE * (count + 64))
        data = bytes(RECORD_SIZE * 64)
        start = time.perf_counter()
        for _ in range(0, count, 64):
            file.write(data)
            os.fdatasync(file.fileno())
        return {"durable": count / (time.perf_counter() - start)}


# -- recovery


def fill(directory: Path, size: int) -> None:
    """A child process: writes `size` bytes as a broker would, says so, and goes on until it is killed."""
    store = MessageStore.open(directory, StoreConfig())
    store.start()
    texts = itertools.cycle([[properties(n * RUN + i) for i in range(RUN)] for n in range(200)])
    told = False
    for number in itertools.count(0, RUN):
        put(store, number, next(texts))
        store.dispatch()
        if store.appended >= size:
            if not told:
                print("full", flush=True)
                told = True
            if store.appended >= size + (64 << 20):
                signal.pause()


@contextlib.contextmanager
def killed_store(run: Run) -> Iterator[Path]:
    directory = run.directory / "killed"
    size = max(64 << 20, int((4 << 30) * run.scale))
    command = [sys.executable, "-m", "bench.store", "fill", str(directory), str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=frame.ROOT) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def recovery_ours(run: Run) -> dict[str, float]:
    """Opening what kill -9 left. The store is copied sparsely for each round, as opening repairs it."""
    root: Path = run.shared
    with scratch(run) as directory:
        for path in root.iterdir():
            if path.name == "commitlog":
                (directory / "commitlog").symlink_to(path)  # recovery only zeros what lies behind the end
            elif path.is_dir():
                subprocess.run(["cp", "-r", "--sparse=always", str(path), str(directory)], check=True)
            else:
                shutil.copy(path, directory)
        start = time.perf_counter()
        store = MessageStore.open(directory, StoreConfig())
        seconds = time.perf_counter() - start
        found = store.recovered
        assert found is not None
        figures = {"serving": seconds, "size": store.appended / 1e9}
        scanned = found.end - found.scanned_from
        if scanned and found.scan_seconds:
            figures["scan"] = scanned / found.scan_seconds / 1e9
            figures["scanned"] = scanned / 1e6
        store.abandon()
    return figures


def scan_ours(run: Run) -> dict[str, float]:
    """No checkpoint at all: every byte of one segment scanned and dispatched."""
    with scratch(run) as directory:
        store = MessageStore.open(directory, StoreConfig(index_enable=False))
        texts = [properties(i) for i in range(RUN)]
        for number in range(0, run.count(400_000, 4000), RUN):
            put(store, number, texts)
        store.flush_once()
        store.dispatch(1)
        store.flush_all()
        store.abandon()
        again = MessageStore.open(directory, StoreConfig(index_enable=False))
        found = again.recovered
        assert found is not None
        again.abandon()
        size = found.end - found.scanned_from
        return {"scan": size / found.scan_seconds / 1e9, "dispatch": size / found.dispatch_seconds / 1e9}


def scan_ceiling(run: Run) -> dict[str, float]:
    """The same number of bytes read from the page cache through a mapping, one record's copy at a time."""
    count = run.count(400_000, 4000)
    with scratch(run) as directory, open(directory / "file", "w+b") as file:
        file.truncate(RECORD_SIZE * count)
        view = memoryview(mmap.mmap(file.fileno(), 0))
        view[:] = bytes(RECORD_SIZE * count)
        start = time.perf_counter()
        for at in range(0, RECORD_SIZE * count, RECORD_SIZE):
            view[at : at + RECORD_SIZE].tobytes()
        return {"scan": RECORD_SIZE * count / (time.perf_counter() - start) / 1e9}


def scan_checksums(run: Run) -> dict[str, float]:
    """CRC-32 of every body: what a scan after a crash of the machine, which compares them, can't be faster than."""
    count = run.count(400_000, 4000)
    view = memoryview(BODY * 64)
    start = time.perf_counter()
    for number in range(count):
        at = number % 64 * len(BODY)
        crc32(view[at : at + len(BODY)])
    return {"scan": RECORD_SIZE * count / (time.perf_counter() - start) / 1e9}


# -- memory


def memory_ours(run: Run) -> dict[str, float]:
    """Growth of anonymous memory (not the page cache) while the log grows."""
    with scratch(run) as directory:
        store = MessageStore.open(directory, StoreConfig(commit_log_segment_size=1 << 26, mapped_segments_max=4))
        texts = [properties(i) for i in range(RUN)]
        steps = run.count(2_000, 4)
        put(store, 0, texts)
        store.dispatch(1 << 40)
        before = anonymous_kib()
        for number in range(steps):
            put(store, number * RUN, texts)
            store.dispatch(1 << 40)
        grown = (anonymous_kib() - before) / 1024
        size = store.appended / 1e9
        store.abandon()
    return {"grown": grown, "log": size}


def anonymous_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextlib.contextmanager
def scratch(run: Run) -> Iterator[Path]:
    directory = run.directory / "store"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


BENCHMARKS: dict[str, Benchmark] = {
    "append": Benchmark(
        what="One 1 KiB message: append (encode, checksum, write, queue offset) and dispatch, ASYNC_FLUSH.",
        figures={
            "append": Figure("µs", "less", goal=8),
            "dispatch": Figure("µs", "less", goal=3, what="queue entry and index entry of one message, 500 a call"),
            "call": Figure("µs", "less", goal=6, what="one call of dispatch for one message"),
        },
        sides={"ours": append_ours, "memcpy + CRC": append_ceiling, "write(2)": append_raw_write},
    ),
    "queues": Benchmark(
        what="Append, dispatch and writing the queue files: one queue against ten thousand, round-robin (CPU time).",
        figures={
            "one": Figure("µs", "less"),
            "many": Figure("µs", "less"),
            "ratio": Figure("×", "less", goal=1.5),
            "fds": Figure("descriptors", "less", goal=1024),
        },
        sides={"ours": queues_ours},
        rounds=3,
    ),
    "flush": Benchmark(
        what="SYNC_FLUSH, 64 messages in flight, acknowledged after fdatasync.",
        figures={"durable": Figure("messages/s", "more")},
        sides={"ours": flush_ours, "raw fdatasync": flush_ceiling},
    ),
    "recovery": Benchmark(
        what="Opening a 4 GiB store after kill -9.",
        figures={
            "serving": Figure("s", "less", goal=1.5, what="from opening to the first append"),
            "scan": Figure("GB/s", "more", what="of the part behind the last checkpoint"),
            "scanned": Figure("MB", "less"),
            "size": Figure("GB", "more"),
        },
        sides={"ours": recovery_ours},
        setup=killed_store,
        rounds=3,
    ),
    "scan": Benchmark(
        what="Recovery's pass over a log of 1 KiB messages in the page cache, and dispatching all of it again.",
        figures={"scan": Figure("GB/s", "more", goal=1.0), "dispatch": Figure("GB/s", "more")},
        sides={"ours": scan_ours, "copying": scan_ceiling, "CRC-32": scan_checksums},
        rounds=3,
    ),
    "memory": Benchmark(
        what="Anonymous memory while a gigabyte is appended and dispatched.",
        figures={"grown": Figure("MiB", "less", goal=64), "log": Figure("GB", "more")},
        sides={"ours": memory_ours},
        rounds=1,
    ),
}


def main(arguments: list[str]) -> None:
    """One line a measurement, then one JSON object with all of them."""
    scale = float(arguments[arguments.index("--scale") + 1]) if "--scale" in arguments else 1.0
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, benchmark in BENCHMARKS.items():
        directory = Path(os.environ.get("TMPDIR", "/tmp")) / f"tandemq-bench-store-{os.getpid()}"
        run = Run(scale, directory)
        with benchmark.setup(run) if benchmark.setup is not None else contextlib.nullcontext() as shared:
            run.shared = shared
            for side, ask in benchmark.sides.items():
                figures = {figure: round(value, 3) for figure, value in ask(run).items()}
                found.setdefault(name, {})[side] = figures
                print(f"{name:9} {side:14} " + "  ".join(f"{k}={v}" for k, v in figures.items()), flush=True)
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["fill"]:
        fill(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(sys.argv[1:])
