"""FaultProxy: a TCP link between two real processes that can be cut, held, slowed, or broken one way."""

import asyncio
import contextlib
from types import TracebackType

CHUNK = 64 << 10


class FaultProxy:
    """Listens on a free port and passes bytes on to `target`; what it does to them can change at any time."""

    def __init__(self, target: str, host: str = "127.0.0.1") -> None:
        self._host = host
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._passes = {"to": asyncio.Event(), "from": asyncio.Event()}
        self.refusing = False
        """New connections are closed at once."""
        self.delay = 0.0
        """Seconds added to every piece."""
        self.allowance: int | None = None
        """So many bytes more come back from the target, then that direction holds; None for no limit."""
        self.port = 0
        self.heal()

    async def __aenter__(self) -> "FaultProxy":
        self._server = await asyncio.start_server(self._accept, self._host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        await asyncio.sleep(0)

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def hold(self, *, to: bool = True, back: bool = True) -> None:
        """Stops everything in these directions, without either end noticing: a cut cable."""
        for name, wanted in (("to", to), ("from", back)):
            if wanted:
                self._passes[name].clear()

    def heal(self) -> None:
        """Lets everything pass, what was held included."""
        self.refusing = False
        self.delay = 0.0
        self.allowance = None
        for event in self._passes.values():
            event.set()

    def reset(self) -> None:
        """Breaks every connection at both ends."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        host, _, port = self._target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, far_writer, self._passes["to"]))
                group.create_task(self._pass(far_reader, writer, self._passes["from"]))
        except* OSError:
            pass
        finally:
            self._writers -= {writer, far_writer}
            for each in (writer, far_writer):
                with contextlib.suppress(OSError):
                    each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
        while data := await reader.read(CHUNK):
            await passes.wait()
            if self.delay:
                await asyncio.sleep(self.delay)
            if self.allowance is not None and passes is self._passes["from"]:
                data = await self._within_allowance(writer, data)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _within_allowance(self, writer: asyncio.StreamWriter, data: bytes) -> bytes:
        """Passes on what is allowed; returns the rest once the direction is healed."""
        assert self.allowance is not None
        allowed, rest = data[: self.allowance], data[self.allowance :]
        self.allowance -= len(allowed)
        if not rest:
            return allowed
        self.hold(to=False)
        writer.write(allowed)
        await writer.drain()
        await self._passes["from"].wait()
        return rest
