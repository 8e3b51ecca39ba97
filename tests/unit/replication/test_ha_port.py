"""The sockets of an HA port, over loopback."""

import asyncio
import contextlib
import socket

from tandemq.replication.ha_port import HaPort, PortEvents
from tandemq.replication.wire import Wire
from tandemq.testing.waiting import until


class Server:
    """Notes what it is told and answers every message with itself."""

    def __init__(self) -> None:
        self.peers: list[str] = []
        self.lost: list[tuple[int, str]] = []
        self.port = HaPort(
            PortEvents(self._connected, self._received, lambda session: None, self._lost), "a slave", None
        )

    def _connected(self, session: int, peer: str) -> None:
        self.peers.append(peer)

    def _received(self, session: int, data: memoryview) -> None:
        copy = bytes(data)
        self.port.send(session, lambda: copy)

    def _lost(self, session: int, wire: Wire | None, text: str) -> None:
        assert session not in self.port.wires
        self.lost.append((session, text))


def test_a_connection_is_read_answered_and_its_end_is_told() -> None:
    async def run() -> None:
        server = Server()
        port = server.port.listen("127.0.0.1", 0, backlog=1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        host, own_port, *_ = writer.get_extra_info("sockname")
        assert server.peers == [f"{host}:{own_port}"]
        writer.close()
        await until(lambda: bool(server.lost))
        assert server.lost == [(1, "a slave closed the connection")]
        server.port.close_listener()

    asyncio.run(run())


def test_a_frame_for_a_session_that_is_gone_is_not_made() -> None:
    """A seal counts the frames that it made: one that never leaves would break the next session's order."""
    made: list[bytes] = []

    def frame() -> bytes:
        made.append(b"")
        return b""

    Server().port.send(7, frame)
    assert made == []


def test_the_port_is_free_when_the_listener_is_closed_and_connections_end() -> None:
    async def run() -> None:
        server = Server()
        port = server.port.listen("127.0.0.1", 0, backlog=1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: bool(server.peers))
        server.port.close_listener()
        server.port.close_wires()
        assert await reader.read() == b""
        writer.close()
        with contextlib.closing(socket.create_server(("127.0.0.1", port))):
            pass

    asyncio.run(run())
