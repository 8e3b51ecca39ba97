"""Every command in README.md and docs/ runs as it stands there, against a pair, or its page says why it can't.

Addresses and directories of the documents are replaced by those of the test, `./run` by the program.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandemq.cli.examples import EXAMPLES
from tandemq.cli.local_cluster import LocalCluster

from .conftest import Cli, Pair
from .documents import PAGES, ROOT, Block, blocks_of, transcript, unlike

pytestmark = pytest.mark.slow

ELSEWHERE = {"README.md": "test_install.py walks its path", "cli.md": "its blocks are the examples below"}
"""Pages whose blocks another test runs."""


class Reader:
    """Somebody who copies commands from the documents into a shell, in a directory with what the pages speak of."""

    def __init__(self, directory: Path) -> None:
        self.pair = Pair(directory / "tandemq-data")
        self.cluster = LocalCluster(self.pair.directory, self.pair.plan)
        self.directory = directory
        program = directory / "bin" / "tandemq"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tandemq "$@"\n')
        program.chmod(0o755)
        (directory / "run").symlink_to(program)
        (directory / "deploy").symlink_to(ROOT / "deploy")
        self.cli = Cli(directory, NAMESRV_ADDR=self.pair.namesrv)
        self.environment = {**self.cli.environment, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        self.replaced = {
            "10.0.0.1:9876;10.0.0.2:9876": self.pair.namesrv,
            "10.0.0.1:9876": self.pair.namesrv.partition(";")[0],
            "127.0.0.1:9876": self.pair.namesrv.partition(";")[0],
            "10.0.0.1:10911": self.pair.master,
            "10.0.0.2:10911": self.pair.slave,
            "/etc/tandemq": str(directory / "etc"),
            "/var/lib/tandemq": str(directory / "var"),
            "/mnt/backup": str(directory / "mounted"),
            "/backup": str(directory / "backup"),
            "/tmp/try-it": str(directory / "try-it"),
        }

    def here(self, text: str) -> str:
        pattern = "|".join(re.escape(old) for old in sorted(self.replaced, key=len, reverse=True))
        return re.sub(pattern, lambda found: self.replaced[found[0]], text)

    def shell(self, commands: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-ec", self.here(commands)],
            capture_output=True, text=True, timeout=120, cwd=self.directory, env=self.environment,
        )  # fmt: skip

    def runs(self, commands: str) -> str:
        done = self.shell(commands)
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    found = Reader(tmp_path_factory.mktemp("reader"))
    for node in found.pair.plan.nodes:
        found.cluster.start(node)
    try:
        found.cli("ha", "wait", "--in-sync", "--timeout", "60")
        yield found
    finally:
        for node in found.pair.plan.nodes:
            found.cluster.kill(node)


# The examples of every `--help`, which docs/cli.md shows as well ------------------------------------------------------

NOT_RUN = {
    "tandemq up": "test_up.py starts clusters",
    "tandemq down": "test_up.py stops them",
    "tandemq demo": "test_up.py runs it",
    "tandemq console": "serves until Ctrl-C: tests/console starts some",
    "tandemq --context prod console": "serves until Ctrl-C: tests/console starts some",
    "tandemq ha wait --caught-up": "waits for a slave of RocketMQ: tests/interop/test_ha_with_rocketmq.py has some",
    "tandemq ha switch": "changes roles: test_failover.py",
    "tandemq ha pause": "needs a coordinator: test_failover.py has one",
    "tandemq ha resume": "needs a coordinator: test_failover.py has one",
    "tandemq ha revoke": "needs a coordinator: tests/unit/cli/test_ha_revoke.py has one",
    "tandemq ha home": "needs a coordinator: tests/unit/broker/test_register_move.py has one",
    "tandemq ha forget": "needs a replica that is gone: tests/fault/test_pair_register.py has one",
    "tandemq store backup /var/lib/tandemq/store s3:": "needs a bucket: tests/fault/test_backup.py has one",
    "tandemq store backup /var/lib/tandemq/store 's3:": "needs a bucket: tests/fault/test_backup.py has one",
    "tandemq store restore": "needs an empty directory, or a bucket: the page on backups restores into one",
    "tandemq namesrv": "a daemon: every test of this folder starts some",
    "tandemq broker -c": "a daemon: every test of this folder starts some",
    "tandemq broker promote": "changes roles: the page on failover below does",
    "tandemq broker demote": "changes roles: tests/fault/test_pair_takeover.py",
    "tandemq sim": "tests/sim runs it",
    "tandemq bench": "test_first_contact.py lists them; measuring takes minutes",
    "tandemq spark": "starts Spark: tests/spark/test_spark_jobs.py runs every job",
    "tandemq consume orders --follow": "ends with Ctrl-C: tests/interop/test_cli_nouns.py presses it",
    "tandemq ha status --watch": "ends with Ctrl-C: test_ha.py presses it",
    "tandemq doctor": "tells about this machine, and may find something: test_first_contact.py",
}
"""Beginning of an example -> where it runs instead."""
LAST = ("tandemq topic create orders --perm r", "tandemq group delete", "tandemq topic delete")
"""The others need what these take away."""
ASKS = ("tandemq topic delete orders", "tandemq group delete billing")
"""They ask whether that is meant."""
CONTEXTS = ("tandemq context", "tandemq --context")
STORE = "tandemq store"


def examples(*beginnings: str) -> list[str]:
    lines = dict.fromkeys(line for lines in EXAMPLES.values() for line in lines)
    return [line for line in lines if line.startswith(beginnings) and not line.startswith(tuple(NOT_RUN))]


def test_the_examples_of_commands(reader: Reader) -> None:
    """Each with the topic, the group, the ids and the files that it names; those that take something away come last."""
    for name in ("broker.conf", "namesrv.conf", "lines.txt", "invoice.pdf"):
        (reader.directory / name).write_text("listenPort=9877\n" if name.endswith("conf") else "one\ntwo\n")
    reader.runs(
        "tandemq topic create orders --queues 1; tandemq group create billing; tandemq consume orders --group billing"
    )
    reader.runs("seq 1 50 | tandemq send orders --key order-1")
    sent = json.loads(reader.runs("tandemq send orders hello --key order-1 --json"))
    reader.replaced["7F0000012F3D9C2048444D9104F5CEBA"] = sent["results"][0]["messageId"]
    stored = json.loads(reader.runs("tandemq message key orders order-1 --json"))
    reader.replaced["7F00000100002A9F0000000000000000"] = stored[0]["offsetMessageId"]
    lines = [line for line in examples("tandemq") if not line.startswith((*CONTEXTS, STORE))]
    assert len(lines) > 40
    for line in sorted(lines, key=lambda line: next((n for n, last in enumerate(LAST) if line.startswith(last)), -1)):
        reader.runs(f"yes | {line}" if line in ASKS else line)
        if line == "tandemq group delete billing":
            reader.runs("tandemq group create billing")
        if line == "tandemq topic delete orders":
            reader.runs("tandemq topic create orders")


def test_the_examples_of_contexts(reader: Reader) -> None:
    """In an order that makes sense, for one who has no certificates: what needs a server with TLS is only kept."""
    lines = [line for line in examples(*CONTEXTS) if "remove" not in line]
    added = [line for line in lines if " add " in line]
    used = [line for line in lines if line not in added]
    for name in ("ca.pem", "me.pem", "me.key"):
        (reader.directory / name).write_text("")
    for line in added:
        reader.runs(f"echo secret | {line}" if "--access-key" in line and "--secret-key" not in line else line)
    reader.runs("tandemq context remove prod; tandemq context add prod -n '10.0.0.1:9876;10.0.0.2:9876' --use")
    for line in [*used, *examples("tandemq context remove")]:
        reader.runs(line)


# The blocks of the pages ----------------------------------------------------------------------------------------------


def blocks_to_run() -> list[Block]:
    return [block for page in PAGES if page.name not in ELSEWHERE for block in blocks_of(page) if not block.not_run]


def test_a_block_that_no_test_runs_says_why() -> None:
    reasons = [block.not_run for page in PAGES for block in blocks_of(page) if block.not_run]
    assert reasons
    assert all(len(reason.split()) > 3 for reason in reasons)


def prepare(reader: Reader, page: Path) -> None:
    """Makes what a page says is there: the files that it prints, and messages."""
    (reader.directory / "etc").mkdir(exist_ok=True)
    for name, text in re.findall(
        r"`/etc/tandemq/(\w+\.conf)`[^`]*?\n\n```properties\n(.*?)```", page.read_text(), re.S
    ):
        (reader.directory / "etc" / name).write_text(text)
    (reader.directory / "backup").mkdir(exist_ok=True)
    reader.runs("tandemq send orders --count 200 --size 100")


def stop_the_slave(reader: Reader) -> None:
    """As the page on backups says; its store is where the documents have it."""
    node = reader.pair.plan.brokers[-1]
    reader.cluster.kill(node)
    (reader.directory / "var").mkdir()
    reader.cluster.store(node).rename(reader.directory / "var" / "store")


def test_the_blocks_of_the_pages(reader: Reader) -> None:
    """In the order of the pages; what works on the store of a stopped broker comes last, with the examples of that."""
    blocks = blocks_to_run()
    on_a_store = [block for block in blocks if STORE in block.text]
    assert (len(blocks), len(on_a_store)) >= (7, 1)
    for page in dict.fromkeys(block.page for block in blocks):
        prepare(reader, page)
        for block in blocks:
            if block.page == page and block not in on_a_store:
                run_block(reader, block)
        reader.runs("tandemq context use -")  # the page on security leaves one with TLS
    stop_the_slave(reader)
    for block in on_a_store:
        run_block(reader, block)
    for line in examples(STORE):
        reader.runs(line)


def run_block(reader: Reader, block: Block) -> None:
    if block.language != "console":
        reader.runs(block.text)
        return
    for command, expected in transcript(block.text):
        output = reader.runs(command)
        missing = unlike([reader.here(line) for line in expected], output)
        assert not missing, f"{command}: {missing}\n{output}"
