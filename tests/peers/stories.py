"""Runs a client program once and hands out what it said, story by story, as test results."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.peers import programs, servers
from tests.peers.tools import Missing

# A push consumer of ours has its first message at once, not with the client's next rebalance (20 s) as with the real
# 5.3.3; the limit leaves room for a busy machine.
PROMISES = {"FIRST_MESSAGE_MS": "10000"}
LINE = re.compile(r"(ok|FAIL) ([a-z0-9-]+)(.*)")


class Told:
    """What a program said about each story, and what the servers said when one failed."""

    def __init__(self, output: str, errors: str, server_logs: str) -> None:
        self.output, self.errors, self.server_logs = output, errors, server_logs
        self.outcomes = {m[2]: (m[1], m[3].strip(" :")) for m in map(LINE.match, output.splitlines()) if m}

    def check(self, story: str) -> None:
        """Fails the test with the program's own words."""
        outcome, why = self.outcomes.get(story, ("nothing", "the program never came to it"))
        if outcome != "ok":
            said = f"{self.output[-2000:]}\n{self.errors[-1500:]}\n{self.server_logs}"
            pytest.fail(f"{story}: {why}\n{said}", pytrace=False)


def run(client: str, side: str, directory: Path, *names: str, timeout: float = 400) -> Told:
    """Stories of a client against one side; skips the test with the reason where the peer cannot be had."""
    try:
        programs.PROGRAMS[client]()  # fetched and built before any server waits for it
        with servers.start(side, directory) as up:
            return tell(client, up, *names, environment=PROMISES if side == "ours" else {}, timeout=timeout)
    except Missing as reason:
        pytest.skip(str(reason))


def tell(client: str, up: servers.Servers, *names: str, environment: Mapping[str, str], timeout: float = 400) -> Told:
    """Stories of a client against servers that are up; all of them if none is named."""
    command, inherited = programs.PROGRAMS[client]()
    program = subprocess.Popen(
        [*command, up.namesrv, up.broker, *names],
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = program.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        output, errors = program.communicate()
        errors += f"\nkilled after {timeout:.0f} s"
    return Told(output, errors, up.said())
