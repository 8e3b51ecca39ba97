"""The name server daemon as users start it."""

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tandemq.codec.command import Command
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tandemq", "namesrv", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("stop_by", [signal.SIGTERM, signal.SIGINT])
def test_starts_says_so_serves_and_stops(tmp_path: Path, stop_by: signal.Signals) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"listenPort=1\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path}/kv.json\nclusterTest=false\n")
    daemon = start("-c", str(conf), "--set", "orderMessageEnable=true", "--listen-port", "0")
    assert daemon.stdout is not None
    try:
        ready = re.fullmatch(r"name server ready on 127\.0\.0\.1:(\d+)\n", daemon.stdout.readline())
        assert ready is not None

        async def ask() -> Command:
            async with RemotingClient(RemotingConfig()) as client:
                return await client.invoke(f"127.0.0.1:{ready[1]}", Command(319), 5.0)

        assert b"orderMessageEnable=true" in asyncio.run(ask()).body
    finally:
        daemon.send_signal(stop_by)
        _, errors = daemon.communicate(timeout=20)
    assert daemon.returncode == 0
    assert "config namesrv.conf:4: clusterTest: an option of RocketMQ that has no effect" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "listenPrt=1"], "did you mean listenPort?"),
        (["-c", "/nowhere/x.conf"], "can't be read"),
        (["--listen-port", "99999"], "listenPort=99999: must be from 0 to 65535"),
        (["--set", "aclEnable=true", "--set", "aclFile=/nowhere/acl.yml"], "aclFile=/nowhere/acl.yml"),
    ],
)
def test_mistakes_end_with_one_sentence(arguments: list[str], message: str) -> None:
    daemon = start(*arguments)
    _, errors = daemon.communicate(timeout=20)
    assert daemon.returncode == 1
    assert message in errors
    assert "Traceback" not in errors
