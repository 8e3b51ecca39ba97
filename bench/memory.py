"""Memory as on a machine that has run for a while.

A virtual machine's memory may exist only once it is touched: on such a one the first write to a fresh page goes through
the hypervisor and takes ten times as long (seen: 0.3 to 0.5 GB/s, 3.8 GB/s ever after), and what is freed may be
taken back. A benchmark that writes hundreds of megabytes of new log then measures the hypervisor. On a server that has
run for a day all memory is page cache, and new pages come from old ones; reading a file without content makes it so.
"""

import contextlib
import os
import tempfile
import time
from pathlib import Path

LEFT_FREE = 256 << 20
WORTH_IT = 1 << 30
_CHUNK = 4 << 20


def fill(directory: Path) -> None:
    """Free memory becomes page cache, as long as the directory's files are there."""
    size = _free() - LEFT_FREE
    if size >= WORTH_IT:
        handle, path = tempfile.mkstemp(prefix="nothing-", dir=directory)
        os.close(handle)
        _read_nothing(Path(path), size)


def _free() -> int:
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemFree:"):
                return int(line.split()[1]) << 10
    return 0


def _read_nothing(path: Path, size: int) -> None:
    """Reads a file that is one hole: its pages take memory and nothing else."""
    said = 0.0
    buffer = bytearray(_CHUNK)
    with open(path, "w+b", buffering=0) as file:
        file.truncate(size)
        done = 0
        while done < size:
            if time.monotonic() - said > 5:
                said = time.monotonic()
                print(f"  making free memory page cache: {done >> 30} of {size >> 30} GiB", flush=True)
            done += os.readv(file.fileno(), [buffer]) or size
