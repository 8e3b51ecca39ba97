"""A server at the other end of a socket pair, for tests of blocking connections."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tandemq.codec.command import Command, decode_command, encode_request
from tandemq.codec.frame import FrameReader

Answering = Callable[[Command], "Command | bytes | None"]


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, answer: Answering) -> Iterator[list[Command]]:
    """Answers whatever is asked over the next connection; `bytes` are sent as they are, None closes."""
    near, far = socket.socketpair()
    asked: list[Command] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        near.settimeout(timeout)
        return near

    def serve() -> None:
        reader = FrameReader(1 << 26, 1 << 22)
        while data := _received(far):
            for frame in reader.feed(data):
                command = decode_command(frame)
                command.body = bytes(command.body)
                asked.append(command)
                reply = answer(command)
                if reply is None:
                    far.close()
                    return
                if isinstance(reply, Command):
                    reply.opaque = command.opaque
                    reply.flag |= 1
                    reply = encode_request(reply)
                with contextlib.suppress(OSError):  # the other end left without waiting
                    far.sendall(reply)

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket.socket, "setsockopt", _ignored, raising=False)
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        near.close()
        far.close()
        thread.join()


def _received(far: socket.socket) -> bytes:
    try:
        return far.recv(1 << 16)
    except OSError:
        return b""


def _ignored(*_: Any) -> None:
    """A socket pair has no TCP options."""
