"""Machines of a test, each a network namespace on one bridge, and cuts between them that drop packets without a word.

with Machines(("etcd", "a", "b")) as machines:
    subprocess.Popen([*machines.inside("a"), "tandemq", "broker"])
    machines.cut("a", "b"); machines.heal()
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Sequence
from types import TracebackType

NETWORK = f"10.77.{os.getpid() % 254}"
"""Another one for each process of tests: what a killed one left has the same addresses on another bridge."""
HERE = f"{NETWORK}.1"
"""Where the test itself is."""
_COUNT = itertools.count()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def namespaces_work() -> bool:
    """Returns whether this process may make network namespaces."""
    name = f"tq{os.getpid()}-probe"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


class Machines:
    def __init__(self, names: Sequence[str]) -> None:
        # The kernel takes a moment to forget a link: each set has its own names, of at most 15 characters.
        self._mark = f"tq{os.getpid()}x{next(_COUNT)}"
        self._numbers = {name: number for number, name in enumerate(names, 10)}
        self._cuts: set[tuple[str, str]] = set()

    def address(self, name: str) -> str:
        return f"{NETWORK}.{self._numbers[name]}"

    def inside(self, name: str) -> list[str]:
        """Returns what goes before a command that runs on that machine."""
        return ["ip", "netns", "exec", self._namespace(name)]

    def _namespace(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def __enter__(self) -> "Machines":
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def _make(self) -> None:
        bridge = f"{self._mark}br"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{HERE}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for name, number in self._numbers.items():
            space, outer = self._namespace(name), f"{self._mark}v{number}"
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outer, "master", bridge, "up")
            for words in (
                ("addr", "add", f"{self.address(name)}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("link", "set", "lo", "up"),
            ):
                _ip("-n", space, *words)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for name, number in self._numbers.items():
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("link", "del", f"{self._mark}v{number}")  # else a process that is left in there keeps it
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self._namespace(name))
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", f"{self._mark}br")

    def cut(self, one: str, other: str) -> None:
        """Lets nothing through between two machines, in either direction, and tells nobody."""
        for here, there in ((one, other), (other, one)):
            _ip("-n", self._namespace(here), "route", "add", "blackhole", f"{self.address(there)}/32")
            self._cuts.add((here, there))

    def heal(self) -> None:
        for here, there in self._cuts:
            _ip("-n", self._namespace(here), "route", "del", "blackhole", f"{self.address(there)}/32")
        self._cuts.clear()
