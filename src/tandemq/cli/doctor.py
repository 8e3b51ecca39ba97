"""`tandemq doctor`: is this machine fit for a broker, and what to change if not.

Each check is a small function that returns a `Finding`; none of them changes anything.
"""

import asyncio
import ctypes
import json
import os
import re
import resource
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tandemq.cli.local_cluster import BROKER_PORT, NAMESRV_PORT, port_is_free
from tandemq.cli.render import DEFAULT_NAMESRV, Namesrv, client_config

app = typer.Typer(help="Check this machine: ports, disk, file limits, clock, Java, addresses.")

OPEN_FILES_WANTED = 65_536
DISK_WANTED_GIB = 10
DISK_USE_MAX_PERCENT = 75
"""Above RocketMQ's diskMaxUsedSpaceRatio a broker begins to delete old segments."""
JAVA_WANTED = 17
RUNNING_SECONDS = 3.0
"""For all that running brokers are asked."""
CLOCK_UNSYNCHRONISED = 5
"""adjtimex(2): TIME_ERROR."""


class Severity(Enum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Severity
    found: str
    advice: str = ""


def check_ports() -> Finding:
    wanted = [NAMESRV_PORT, BROKER_PORT - 2, BROKER_PORT, BROKER_PORT + 1]
    taken = [port for port in wanted if not port_is_free(port)]
    if not taken:
        return Finding("ports", Severity.OK, f"{', '.join(map(str, wanted))} are free")
    return Finding(
        "ports",
        Severity.WARNING,
        f"in use: {', '.join(map(str, taken))}",
        "fine if that is TandemQ already running; otherwise set listenPort (`tandemq up` finds free ports by itself)",
    )


def check_disk(directory: Path) -> Finding:
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    usage = shutil.disk_usage(existing)
    free_gib, used = usage.free / 2**30, 100 * usage.used // usage.total
    found = f"{free_gib:.0f} GiB free at {existing}, {used} % used"
    if not os.access(existing, os.W_OK):
        return Finding("disk", Severity.PROBLEM, f"{existing} is not writable", "choose another storePathRootDir")
    if free_gib < 2:
        return Finding("disk", Severity.PROBLEM, found, "a commit log segment is 1 GiB: free some space")
    if free_gib < DISK_WANTED_GIB or used > DISK_USE_MAX_PERCENT:
        advice = f"above {DISK_USE_MAX_PERCENT} % (diskMaxUsedSpaceRatio) old segments go early, above 90 % writes stop"
        return Finding("disk", Severity.WARNING, found, advice)
    return Finding("disk", Severity.OK, found)


def check_open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= OPEN_FILES_WANTED:
        return Finding("open files", Severity.OK, f"limit {soft}")
    advice = f"thousands of clients need more: ulimit -n {OPEN_FILES_WANTED} (LimitNOFILE= in a systemd unit)"
    return Finding("open files", Severity.WARNING, f"limit {soft} (hard limit {hard})", advice)


def check_memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    verdict = Severity.OK if total >= 2 else Severity.WARNING
    return Finding(
        "memory",
        verdict,
        f"{total:.1f} GiB",
        "" if verdict is Severity.OK else "reads of older messages will hit the disk",
    )


def check_clock() -> Finding:
    """Tells whether the clock is synchronised: timestamps are compared across machines."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    if state == CLOCK_UNSYNCHRONISED:
        return Finding(
            "clock",
            Severity.WARNING,
            "not synchronised",
            "run chrony or systemd-timesyncd: store times and delays follow it",
        )
    if state < 0:
        return Finding("clock", Severity.OK, "its state can't be read here")
    return Finding("clock", Severity.OK, "synchronised")


def check_java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else str(Path(home) / "bin" / "java")
    advice = "only Spark needs it (Debian: apt-get install openjdk-17-jre-headless)"
    if java is None or not Path(java).exists():
        return Finding("java", Severity.WARNING, "none found", advice)
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', text)
    if version is None or int(version[1]) < JAVA_WANTED:
        return Finding("java", Severity.WARNING, f"{java}: {text.splitlines()[0] if text else '?'}", advice)
    return Finding("java", Severity.OK, f"{version[1]} ({java})")


def check_address() -> Finding:
    """Finds the address a broker would announce to clients if brokerIP1 is not set."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address: no packet is sent, the kernel only picks a route
            address = probe.getsockname()[0]
        except OSError:
            address = "127.0.0.1"
    if address.startswith("127."):
        return Finding("address", Severity.WARNING, address, "clients on other machines can't reach it: set brokerIP1")
    return Finding("address", Severity.OK, f"brokers here announce {address} unless brokerIP1 says otherwise")


def check_access(conf: Path) -> Finding:
    """Finds what a broker's file leaves open although its other half is closed."""
    from tandemq.broker.config import BrokerConfig
    from tandemq.broker.exposure import exposures
    from tandemq.cli.config_file import load
    from tandemq.remoting.config import RemotingConfig
    from tandemq.replication.config import ReplicationConfig
    from tandemq.store.config import StoreConfig

    loaded = load(conf, (BrokerConfig, StoreConfig, RemotingConfig, ReplicationConfig), lenient=True)
    found = exposures(loaded[RemotingConfig], loaded[ReplicationConfig])
    return _access(f"{conf.name} leaves nothing half open", found)


def check_running(namesrv: str) -> Finding:
    """Asks the brokers that run what they leave open."""
    from tandemq.cli.ha_nodes import collect
    from tandemq.client.admin import Admin
    from tandemq.errors import TandemError

    async def ask() -> list[str]:
        async with asyncio.timeout(RUNNING_SECONDS), Admin(config=client_config(namesrv, api_timeout_ms=900)) as admin:
            nodes = await collect(admin, None, None)
        return [f"{node['address']}: {warning}" for node in nodes for warning in node.get("warnings", ())]

    try:
        return _access("the brokers that run leave nothing half open", asyncio.run(ask()))
    except (TandemError, OSError, TimeoutError):
        return Finding("access", Severity.OK, "no name server answers, so no running broker was asked")


def _access(good: str, found: list[str]) -> Finding:
    if not found:
        return Finding("access", Severity.OK, good)
    return Finding("access", Severity.WARNING, "; ".join(found), "see docs/security.md")


def examine(directory: Path, conf: Path | None = None, namesrv: str = "") -> list[Finding]:
    checks: list[Callable[[], Finding]] = [
        check_ports,
        lambda: check_disk(directory),
        check_open_files,
        check_memory,
        check_clock,
        check_java,
        check_address,
    ]
    if conf is not None:
        checks.append(lambda: check_access(conf))
    else:
        checks.append(lambda: check_running(namesrv))
    return [check() for check in checks]


_STYLE = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}


@app.callback(invoke_without_command=True)
def doctor(
    directory: Annotated[Path, typer.Option("--dir", help="Where the data would live.")] = Path("tandemq-data"),
    conf: Annotated[Path | None, typer.Option("--config", "-c", help="A broker.conf to look at as well.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this machine: ports, disk, file limits, clock, Java, addresses, and what running brokers leave open.

    Exit 1 if something has to be fixed.
    """
    findings = examine(directory, conf, namesrv)
    if as_json:
        print(json.dumps([asdict(finding) | {"verdict": finding.verdict.value} for finding in findings]))
    else:
        table = Table("check", "", "found", "what to do", box=None, pad_edge=False)
        for finding in findings:
            verdict = f"[{_STYLE[finding.verdict]}]{finding.verdict.value}[/]"
            table.add_row(finding.check, verdict, finding.found, finding.advice)
        Console().print(table)
    if any(finding.verdict is Severity.PROBLEM for finding in findings):
        raise typer.Exit(1)
