"""The client programs that tell stories, each as a command line: fetched, built and cached on first use.

A program is called with NAMESRV BROKER_ADDR [STORY ...] and prints "ok STORY" or "FAIL STORY: why" a line.
"""

import functools
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tests.peers.tools import CACHE, HERE, fetch, need, one_at_a_time

CLIENTS = HERE.parent / "interop" / "clients"
ROCKETMQ = [sys.executable, str(HERE / "rocketmq")]
JAVA_VERSIONS = tuple(os.environ.get("TANDEMQ_PEER_VERSIONS", "4.9.7,5.3.3").split(","))
"""Of RocketMQ, whose client, tools and brokers the tests run with."""

Program = tuple[list[str], dict[str, str]]
"""A command line without its arguments, and the environment it runs in."""


@functools.cache
def rocketmq_jars(version: str) -> None:
    """Upstream's jars of a version and the compiled drivers, in the cache."""
    with one_at_a_time("rocketmq"):
        need("java", "javac", "mvn")
        fetch(f"RocketMQ {version} (Maven)", [*ROCKETMQ, "fetch", version])


def java(version: str, driver: str = "Scenarios") -> Program:
    """A driver from java/ on upstream's client of that version."""
    rocketmq_jars(version)
    return [*ROCKETMQ, "java", "--version", version, driver], dict(os.environ)


def alone(make: Callable[[], Program]) -> Callable[[], Program]:
    """A program that is made by one process at a time, and asked for once by each."""

    @functools.cache
    def made() -> Program:
        with one_at_a_time(make.__name__):
            return make()

    return made


@alone
def go() -> Program:
    """Apache's Go client v2.1.2 and our program, built once for each version of the program."""
    need("go")
    source = CLIENTS / "go"
    home = CACHE / f"go-{_digest(source / 'scenarios.go', source / 'go.sum')}"
    binary = home / "scenarios"
    if not binary.exists():
        home.mkdir(parents=True, exist_ok=True)
        build = ["go", "build", "-o", str(binary) + ".new", "."]
        fetch("the Go client rocketmq-client-go/v2@v2.1.2", build, cwd=source)
        Path(str(binary) + ".new").rename(binary)
    return [str(binary)], dict(os.environ)


@alone
def node() -> Program:
    """npm's ali-ons 3.12.0 beside our program."""
    need("node", "npm")
    source = CLIENTS / "node"
    home = CACHE / f"node-{_digest(source / 'package.json')}"
    if not (home / "node_modules" / "ali-ons").exists():
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / "package.json", home)
        fetch("npm's ali-ons@3.12.0", ["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier"], cwd=home)
    return ["node", str(source / "scenarios.js")], {**os.environ, "NODE_PATH": str(home / "node_modules")}


@alone
def cpp() -> Program:
    """The C++ client inside PyPI's rocketmq 0.4.4, in an environment of its own: it is no dependency of ours."""
    home = CACHE / f"cpp-{sys.version_info.major}.{sys.version_info.minor}"
    python = home / "bin" / "python"
    if not (home / "lib").exists() or not list(home.glob("lib/*/site-packages/rocketmq/librocketmq.so")):
        fetch("a Python environment for the C++ client", [sys.executable, "-m", "venv", "--clear", str(home)])
        install = [str(python), "-m", "pip", "install", "-q", "-r", str(CLIENTS / "cpp" / "requirements.txt")]
        fetch("PyPI's rocketmq==0.4.4", install)
    fetch("the C++ client's shared library", [str(python), "-c", "import rocketmq.client"])
    scratch = CACHE / "cpp-home"  # the client writes its logs and broadcast offsets there
    scratch.mkdir(parents=True, exist_ok=True)
    return [str(python), str(CLIENTS / "cpp" / "scenarios.py")], {**os.environ, "HOME": str(scratch)}


PROGRAMS: dict[str, Callable[[], Program]] = {
    **{f"java-{version}": functools.partial(java, version) for version in JAVA_VERSIONS},
    "go": go,
    "node": node,
    "cpp": cpp,
}


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
