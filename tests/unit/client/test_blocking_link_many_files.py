"""A blocking link in a process with more open files than `select` can name."""

import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tandemq.client.blocking_link import BlockingLink

SELECT_FILES_MAX = 1024


@pytest.fixture
def many_open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SELECT_FILES_MAX + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"a process may open only {hard} files here")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        null = os.open(os.devnull, os.O_RDONLY)
        files.callback(os.close, null)
        highest = null
        while highest <= SELECT_FILES_MAX:
            highest = os.dup(null)
            files.callback(os.close, highest)
        yield


@pytest.mark.usefixtures("many_open_files")
def test_a_frame_larger_than_the_socket_takes_is_sent_whole() -> None:
    body = bytes(8 << 20)
    received = 0

    def read_all() -> None:
        nonlocal received
        peer, _ = server.accept()
        with peer:
            while received < len(body):
                received += len(peer.recv(1 << 20))

    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = threading.Thread(target=read_all)
        link = BlockingLink(f"127.0.0.1:{server.getsockname()[1]}", timeout=20)
        assert link._socket.fileno() > SELECT_FILES_MAX
        reader.start()
        link.send(10, {}, body)
        reader.join(20)
        link.close()
    assert received >= len(body)
