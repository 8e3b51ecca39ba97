"""A link between two sites: the tap as a process of its own, with its handle."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.peers.servers import free_ports

TAP = Path(__file__).resolve().parent.parent / "tests" / "peers" / "tap"
HOST = "127.0.0.1"


class SiteLink:
    """Leads to a broker's listening port and to its HA port over one line, which can be slowed and cut."""

    def __init__(self, port: int, *, delay_ms: int = 0, rate: int = 0) -> None:
        """`port` is the broker's; `rate` is in bytes a second for each direction, 0 without a limit."""
        self._port = port
        self._settings = [f"delay {delay_ms}", f"rate {rate}"]

    async def __aenter__(self) -> "SiteLink":
        (near,) = free_ports(around=True)
        (control,) = free_ports()
        command = [sys.executable, str(TAP), "--control", str(control)]
        for number in (0, 1):
            command += ["--listen", f"{HOST}:{near + number}", "--to", f"{HOST}:{self._port + number}"]
        self._process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        await self._process.stdout.readline()
        self._reader, self._writer = await asyncio.open_connection(HOST, control)
        self.address, self.ha_address = f"{HOST}:{near}", f"{HOST}:{near + 1}"
        for setting in self._settings:
            await self.tell(setting)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        self._process.kill()
        await self._process.wait()

    async def tell(self, command: str) -> str:
        """One command of the tap; returns its answer."""
        self._writer.write(f"{command}\n".encode())
        answer = (await self._reader.readline()).decode().strip()
        if answer.startswith("error"):
            raise ValueError(answer)
        return answer

    async def cut(self, seconds: float) -> None:
        """Breaks what runs over it and lets nothing through for a while."""
        await self.tell("cut")
        await asyncio.sleep(seconds)
        await self.tell("mend")

    async def received(self) -> int:
        """Bytes that came over it from the broker."""
        return int((await self.tell("count")).split()[1])


def differ(one: Path, other: Path, start: int, end: int, segment_size: int) -> Sequence[int]:
    """Offsets at which two logs differ between two offsets, one for each piece of a MiB."""
    found = []
    for position in range(start, end, 1 << 20):
        size = min(1 << 20, end - position)
        if _read(one, position, size, segment_size) != _read(other, position, size, segment_size):
            found.append(position)
    return found


def _read(store: Path, position: int, size: int, segment_size: int) -> bytes:
    base = position - position % segment_size
    with open(store / "commitlog" / f"{base:020d}", "rb") as file:
        file.seek(position - base)
        return file.read(size)
