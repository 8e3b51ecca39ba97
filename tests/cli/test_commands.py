"""What an operator does with a running pair: the real program, the real brokers."""

import asyncio
import base64
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import uuid
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli, Pair

from tandemq import __version__
from tandemq.client import sync
from tandemq.client.admin import Admin
from tandemq.client.config import ClientConfig, ConsumeFrom
from tandemq.client.consumption import Action
from tandemq.errors import ReplyError
from tandemq.model.topic import TopicConfig
from tandemq.testing.waiting import wait_until

pytestmark = pytest.mark.slow  # every command is a process of its own


def consumed(cli: Cli, topic: str) -> list[str]:
    return [json.loads(line)["body"] for line in cli("consume", topic, "--json").stdout.splitlines()]


# Send -----------------------------------------------------------------------------------------------------------------


def sending(cli: Cli, *arguments: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    command = [*cli.program, "send", *arguments]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=cli.environment)


def test_each_line_is_sent_as_it_comes_and_once(cli: Cli, topic: str) -> None:
    """Longer than a send may take lies between the lines: waiting for stdin must not hold up the answers."""
    with sending(cli, topic, "--timeout", "0.5", "--json") as process:
        assert process.stdin is not None
        process.stdin.write("a\n")
        process.stdin.flush()
        wait_until(lambda: consumed(cli, topic) == ["a"], "the first line, while stdin is open")
        out, errors = process.communicate("b\n", timeout=30)
    assert process.returncode == 0, errors
    assert json.loads(out)["statuses"] == {"SEND_OK": 2}
    assert sorted(consumed(cli, topic)) == ["a", "b"]


def test_ctrl_c_ends_a_send_that_waits_for_stdin(cli: Cli, topic: str) -> None:
    with sending(cli, topic) as process:
        assert process.stdin is not None
        process.stdin.write("a\n")
        process.stdin.flush()
        wait_until(lambda: consumed(cli, topic) == ["a"], "the first line")
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130


def test_a_file_is_one_message(cli: Cli, topic: str, tmp_path: Path) -> None:
    content = bytes(range(256)) + b"\nline\n"
    (tmp_path / "a.bin").write_bytes(content)
    assert cli.json("send", topic, "--file", "a.bin", "--file", "a.bin")["sent"] == 2
    assert [len(body) for body in consumed_sizes(cli, topic)] == [len(content)] * 2
    assert "can't be read" in cli.refused("send", topic, "--file", "missing.bin")


def consumed_sizes(cli: Cli, topic: str) -> list[bytes]:
    lines = [json.loads(line) for line in cli("consume", topic, "--json").stdout.splitlines()]
    return [bytes(line["size"]) for line in lines]


def test_made_up_bodies_do_not_compress(cli: Cli, topic: str, pair: Pair) -> None:
    cli("send", topic, "--count", "3", "--size", "20000")
    log = b"".join(path.read_bytes() for path in sorted((pair.directory / "master" / "store" / "commitlog").iterdir()))
    used = log.rstrip(b"\0")
    assert len(used) > 60_000
    lines = [json.loads(line) for line in cli("consume", topic, "--json").stdout.splitlines()]
    assert [line["size"] for line in lines] == [20_000] * 3
    bodies = [base64.b64decode(line["bodyBase64"]) for line in lines]
    assert len(set(bodies)) == 3
    assert all(len(zlib.compress(body)) > 19_000 for body in bodies)


def test_fewer_copies_than_wanted_are_exit_code_3(cli: Cli, topic: str) -> None:
    """The message is stored, the producer is told, and a script can tell."""
    done = cli("send", topic, "x", "--copies", "3", "--json", code=3)
    (result,) = json.loads(done.stdout)["results"]
    assert result["status"] == "SLAVE_NOT_AVAILABLE"
    assert result["remark"] == "3 copies are required, 2 can be had: the group has 2 nodes"
    assert "must be a number of copies" in cli.refused("send", topic, "x", "--copies", "nine")


# Topics, groups, brokers ----------------------------------------------------------------------------------------------


def test_changing_a_topic_leaves_what_is_not_given(cli: Cli) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    (made,) = cli.json("topic", "create", name, "-q", "3", "--order", "--attribute", "tandemq.copies=2")
    assert made["result"] == "created"
    (changed,) = cli.json("topic", "create", name, "--perm", "r")
    assert changed == {
        "broker": "broker-a",
        "topic": name,
        "queues": 3,
        "perm": "r",
        "order": True,
        "attributes": {"tandemq.copies": "2"},
        "result": "changed",
    }
    (again,) = cli.json("topic", "create", name)
    assert again == changed


def test_a_topics_copies_are_checked(cli: Cli, pair: Pair) -> None:
    """By the program, and by the broker for those who use other tools."""
    told = cli.refused("topic", "create", "x", "--attribute", "tandemq.copies=nine")
    assert "ack level 'nine'" in told

    async def ask() -> None:
        async with Admin(namesrv=pair.namesrv) as admin:
            await admin.create_topic(TopicConfig(name="x", attributes={"tandemq.copies": "nine"}))

    with pytest.raises(ReplyError, match=r"tandemq\.copies"):
        asyncio.run(ask())


def test_the_list_of_topics_has_counts_and_rates(cli: Cli, topic: str) -> None:
    cli("send", topic, "--count", "7", "--size", "10")
    row = next(row for row in cli.json("topic", "list") if row["topic"] == topic)
    assert (row["brokers"], row["queues"], row["messages"]) == (1, 2, 7)
    assert row["lastUpdateMs"] > 0
    assert {"inPerSecond", "outPerSecond"} <= set(row)
    assert "MESSAGES" in cli("topic", "list").stdout


def test_the_lag_of_a_group_that_is_not_there_is_an_error(cli: Cli) -> None:
    assert "not known to any broker" in cli.refused("group", "lag", "tpyo")
    assert "not known to any broker" in cli.refused("group", "clients", "tpyo")
    assert "not known to any broker" in cli.refused("dlq", "list", "tpyo")


def test_clients_of_a_group(cli: Cli, topic: str, pair: Pair) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    cli("group", "create", group)
    assert "no client of group" in cli("group", "clients", group).stderr
    member = sync.PushConsumer(group, lambda messages: None, namesrv=pair.namesrv)
    member.subscribe(topic, "a || b")
    with member:
        rows = wait_until(lambda: cli.json("group", "clients", group), "the client")
    assert rows[0]["language"] == "PYTHON"
    assert rows[0]["subscriptions"][topic] == "a || b"


def test_brokers_are_listed_with_their_version(cli: Cli, pair: Pair) -> None:
    rows = cli.json("broker", "list")
    assert [(row["brokerId"], row["address"], row["state"]) for row in rows] == [
        (0, pair.master, "up"),
        (1, pair.slave, "up"),
    ]
    assert {row["version"] for row in rows} == {f"TandemQ {__version__}"}
    assert f"TandemQ {__version__}" in cli("broker", "list").stdout


def test_options_of_a_running_broker_are_shown_and_changed(cli: Cli, pair: Pair) -> None:
    assert cli.json("broker", "config", pair.master, "--filter", "filereserved") == {"fileReservedTime": "72"}
    assert cli.json("broker", "config", pair.master, "--set", "fileReservedTime=48") == {"fileReservedTime": "48"}
    assert "48" in cli("broker", "config", pair.master, "--filter", "fileReserved").stdout
    for refused in ("fileReservedTime=0", "brokerPermission=0", "storePathRootDir=/tmp/x", "nonsense=1"):
        assert refused.partition("=")[0] in cli.refused("broker", "config", pair.master, "--set", refused)
    cli("broker", "config", pair.master, "--set", "fileReservedTime=72")


def test_the_id_that_send_prints_finds_the_message(cli: Cli, topic: str) -> None:
    sent = cli.json("send", topic, "found")["results"][0]
    assert cli.json("message", "id", sent["messageId"])["body"] == "found"
    assert cli.json("message", "id", sent["offsetMessageId"])["body"] == "found"
    told = cli.refused("message", "id", "7F0000012F3D9C2048444D9104F5CEBA")
    assert "in any topic" in told


# Dead letters ---------------------------------------------------------------------------------------------------------


def test_dead_letters_are_listed_and_come_back_to_their_group(cli: Cli, topic: str, pair: Pair) -> None:
    group, seen = f"g-{uuid.uuid4().hex[:8]}", []
    cli("group", "create", group, "--retry-max", "0")

    def refuse(messages: Any) -> Action:
        seen.extend(message.body for message in messages)
        return Action.LATER

    def take(messages: Any) -> None:
        seen.extend(message.body for message in messages)

    cli("send", topic, "one", "--key", "k1")
    cli("send", topic, "two", "--key", "k2")
    assert "no dead letters" in cli("dlq", "list", group).stderr
    config = ClientConfig(namesrv=pair.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, reconsume_max=0)
    options = {"config": config}
    with consumer(group, topic, refuse, **options):
        wait_until(lambda: len(cli.json("dlq", "list", group)) == 2, "two dead letters")
    rows = cli.json("dlq", "list", group)
    assert {row["topic"] for row in rows} == {topic}
    assert next(row for row in cli.json("dlq", "list") if row["group"] == group)["messages"] == 2

    seen.clear()
    assert [row["status"] for row in cli.json("dlq", "resend", group, "--dry-run")] == ["not sent"] * 2
    second = rows[1]["keys"]
    assert [row["keys"] for row in cli.json("dlq", "resend", group, "--key", second[0])] == [second]
    assert [row["status"] for row in cli.json("dlq", "resend", group)] == ["SEND_OK"] * 2
    assert cli.json("dlq", "resend", group) == []
    with consumer(group, topic, take, **options):
        bodies = [row["body"].encode() for row in rows]
        wait_until(lambda: sorted(seen) == sorted([*bodies, bodies[1]]), lambda: f"what was sent again, had {seen}")
    assert len(consumed(cli, topic)) == 2, "other groups must not see them again"


def consumer(group: str, topic: str, listener: Any, **options: Any) -> Any:
    found = sync.PushConsumer(group, listener, **options)
    found.subscribe(topic)
    return found


# Contexts, completion, terminals --------------------------------------------------------------------------------------


def test_a_context_stands_for_flags(alone: Cli, pair: Pair) -> None:
    assert "no contexts yet" in alone("context", "list").stderr
    alone("context", "add", "here", "-n", pair.namesrv)
    account = ("--access-key", "operator", "--secret-key", "hidden-secret")
    alone("context", "add", "elsewhere", "-n", "127.0.0.1:1", *account)
    assert [(row["context"], row["current"]) for row in alone.json("context", "list")] == [
        ("elsewhere", False),
        ("here", True),
    ]
    assert alone.json("broker", "list")[0]["address"] == pair.master
    assert "127.0.0.1:1" in alone.refused("--context", "elsewhere", "topic", "list")
    alone("context", "use", "elsewhere")
    assert "127.0.0.1:1" in alone.refused("topic", "list")
    assert alone.json("topic", "list", "--names", "-n", pair.namesrv) is not None
    shown = alone("context", "show").stdout
    assert "operator" in shown
    assert "hidden-secret" not in shown
    file = Path(alone.environment["XDG_CONFIG_HOME"]) / "tandemq" / "contexts.json"
    assert file.stat().st_mode & 0o077 == 0
    alone("context", "remove", "elsewhere")
    assert "context 'elsewhere' is unknown; there are here" in alone.refused("context", "use", "elsewhere")


def test_commands_find_the_local_cluster(alone: Cli, pair: Pair) -> None:
    """Without any flag: the cluster of ./tandemq-data, or the last one that this user started."""
    (alone.directory / "tandemq-data").symlink_to(pair.directory)
    assert alone.json("broker", "list")[0]["address"] == pair.master
    (alone.directory / "tandemq-data").unlink()
    assert "127.0.0.1:9876" in alone.run("topic", "list").stderr or alone.run("topic", "list").returncode == 0
    state = Path(alone.environment["XDG_STATE_HOME"]) / "tandemq"
    state.mkdir(parents=True)
    (state / "clusters").write_text(f"/nowhere\n{pair.directory}\n")
    assert alone.json("broker", "list")[0]["address"] == pair.master


def completions(cli: Cli, line: str) -> list[str]:
    words = line.split(" ")
    environment = {
        **cli.environment,
        "_TANDEMQ_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    program = Path(cli.program[0]).parent / "tandemq"
    return subprocess.run([program], capture_output=True, text=True, env=environment, timeout=30).stdout.split()


def test_a_shell_completes_nouns_commands_options_topics_and_groups(cli: Cli, topic: str, pair: Pair) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    cli("group", "create", group)
    assert "topic" in completions(cli, "tandemq to")
    assert {"list", "create", "delete", "status", "route"} <= set(completions(cli, "tandemq topic "))
    assert "--queues" in completions(cli, "tandemq topic create x --q")
    assert completions(cli, f"tandemq topic status {topic[:6]}") == [topic]
    assert completions(cli, f"tandemq send {topic[:6]}") == [topic]
    assert completions(cli, f"tandemq group lag {group[:6]}") == [group]
    assert pair.master in completions(cli, "tandemq broker config ")


def on_a_terminal(cli: Cli, *arguments: str, columns: int = 80) -> str:
    """Runs the program on a pseudo-terminal; returns what it drew."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in cli.environment.items() if name != "COLUMNS"}
    environment["TERM"] = "xterm-256color"
    with subprocess.Popen([*cli.program, *arguments], stdout=child, stderr=child, env=environment) as process:
        os.close(child)
        drawn = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:
                break
            drawn += part
        process.wait(30)
    os.close(parent)
    return drawn.decode()


def test_colours_are_for_terminals(cli: Cli, topic: str) -> None:
    assert "\x1b[" in on_a_terminal(cli, "topic", "list")
    assert "\x1b[" not in cli("topic", "list").stdout
    assert "\x1b[" not in on_a_terminal(cli, "topic", "list", "--json")
    assert "\x1b[" not in cli("--help").stdout
