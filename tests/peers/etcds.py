"""Which etcd: the distribution's 3.4, or a 3.5 without the corruption of its first releases, built from Go modules."""

import functools
import os
import shutil
from pathlib import Path

from tests.peers.tools import CACHE, HERE, Missing, fetch, need, one_at_a_time

BUILT_VERSION = "3.5.21"
"""As etcd/go.mod requires it: 3.5.0 to 3.5.5 may lose data in a crash."""


def distributions() -> str:
    """Returns the etcd of this machine's distribution; Missing where there is none."""
    need("etcd")
    return os.environ.get("TANDEMQ_ETCD") or shutil.which("etcd") or ""


@functools.cache
def built() -> str:
    """Returns an etcd 3.5 that was built once and kept; Missing where Go or the modules can't be had."""
    binary = CACHE / f"etcd-{BUILT_VERSION}" / "etcd"
    with one_at_a_time("etcd"):
        if not binary.exists():
            need("go")
            binary.parent.mkdir(parents=True, exist_ok=True)
            new = Path(f"{binary}.new")
            build = ["go", "build", "-o", str(new), "go.etcd.io/etcd/server/v3"]
            fetch(f"etcd {BUILT_VERSION}", build, cwd=HERE / "etcd", timeout=900)
            new.rename(binary)
    return str(binary)


def program(version: str) -> str:
    """Returns the etcd of a version, `3.4` (the distribution's) or `3.5`, or the one at a path."""
    if version == "3.5":
        return built()
    if version == "3.4":
        return distributions()
    if not Path(version).exists():
        raise Missing(f"there is no etcd at {version}")
    return version
