"""Which outside programs a peer needs, whether they are here, and the reason to print when they are not.

Nothing is installed behind anyone's back: only in CI (CI=true, as root, with apt-get) may a missing tool come from the
distribution. Everything fetched by package coordinates lives in `CACHE`, so a second run needs no network.
"""

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

CACHE = Path(os.environ.get("TANDEMQ_PEERS_CACHE", Path.home() / ".cache" / "tandemq-peers"))
HERE = Path(__file__).resolve().parent

# command -> the Debian packages that bring it
PACKAGES: dict[str, list[str]] = {
    "java": ["openjdk-17-jdk-headless"],
    "javac": ["openjdk-17-jdk-headless"],
    "mvn": ["maven"],
    "etcd": ["etcd-server"],
    "go": ["golang-go"],
    "node": ["nodejs"],
    "npm": ["npm"],
    "openssl": ["openssl"],
    "prometheus": ["prometheus"],
    "promtool": ["prometheus"],
    "systemd-analyze": ["systemd"],
}


class Missing(Exception):
    """A peer that cannot be had here; the text is the reason a skipped test prints."""


def need(*commands: str) -> None:
    """Raises Missing unless every command can be run."""
    absent = [command for command in commands if shutil.which(command) is None]
    if absent and _may_install():
        _install(tuple(sorted({package for command in absent for package in PACKAGES[command]})))
        absent = [command for command in commands if shutil.which(command) is None]
    if absent:
        packages = " ".join(sorted({package for command in absent for package in PACKAGES[command]}))
        raise Missing(f"no {', '.join(absent)} on this machine (Debian: apt-get install {packages})")


def _may_install() -> bool:
    return os.environ.get("CI") == "true" and os.geteuid() == 0 and shutil.which("apt-get") is not None


@functools.cache
def _install(packages: tuple[str, ...]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        subprocess.run(command, env=environment, capture_output=True, timeout=600, check=False)


@contextlib.contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Test files run side by side: the first that needs a peer makes it, the others wait and find it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch(what: str, command: list[str], *, cwd: Path | None = None, timeout: float = 420) -> None:
    """Runs a command that fetches or builds; Missing with the end of its output if it fails."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{what} cannot be fetched: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"{what} cannot be fetched: {said[-1] if said else f'exit status {done.returncode}'}")
