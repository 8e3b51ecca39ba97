"""`tandemq topic|group|send|consume|message`: the real program against a running name server and broker."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tandemq.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow  # every command is a process of its own

PROGRAM = [sys.executable, "-c", "from tandemq.cli.main import main; main()"]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Servers in a thread of this process: the commands are processes of their own."""
    ready: list[str] = []
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with LocalCluster(tmp_path_factory.mktemp("cli")) as cluster:
            await cluster.add_broker(properties={"enablePropertyFilter": "true"})
            ready.append(cluster.namesrv_address)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(30)
    yield ready[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()


class Cli:
    def __init__(self, namesrv: str) -> None:
        self.environment = {**os.environ, "NAMESRV_ADDR": namesrv, "COLUMNS": "200"}

    def __call__(self, *arguments: str, stdin: str = "", ok: bool = True) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [*PROGRAM, *arguments], input=stdin, capture_output=True, text=True, timeout=60, env=self.environment
        )
        assert (done.returncode == 0) is ok, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str, stdin: str = "") -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin).stdout)


@pytest.fixture
def cli(namesrv: str) -> Cli:
    return Cli(namesrv)


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cli("topic", "create", name, "--queues", "2")
    return name


def test_topics_are_created_listed_described_and_deleted(cli: Cli) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert cli.json("topic", "create", name, "-q", "3")[0]["queues"] == 3
    assert {"topic": name} in cli.json("topic", "list", "--names")
    assert name in cli("topic", "list").stdout
    route = cli.json("topic", "route", name)[0]
    assert (route["readQueues"], route["perm"]) == (3, "rw")
    assert [row["queueId"] for row in cli.json("topic", "status", name)] == [0, 1, 2]
    assert "deleted" in cli("topic", "delete", name, "--yes").stderr
    assert {"topic": name} not in cli.json("topic", "list", "--names")


def test_a_message_is_sent_with_all_its_labels_and_found_again(cli: Cli, topic: str) -> None:
    arguments = ("--tag", "A", "--key", "k1", "--key", "k2", "--property", "colour=red", "--sharding-key", "s")
    sent = cli.json("send", topic, "hello wörld", *arguments)["results"][0]
    assert sent["status"] == "SEND_OK"
    (found,) = cli.json("message", "key", topic, "k2")
    assert found["body"] == "hello wörld"
    assert (found["tags"], found["keys"], found["properties"]["colour"]) == ("A", ["k1", "k2"], "red")
    place = ("message", "offset", topic, str(sent["queueId"]), str(sent["queueOffset"]))
    assert cli.json(*place)["messageId"] == sent["messageId"]
    assert cli.json("message", "id", sent["offsetMessageId"])["body"] == "hello wörld"
    assert cli.json("message", "id", sent["messageId"], "--topic", topic)["body"] == "hello wörld"
    assert "hello wörld" in cli(*place).stdout


def test_lines_of_stdin_are_messages(cli: Cli, topic: str) -> None:
    assert cli.json("send", topic, stdin="one\n\ntwo\nthree\n")["sent"] == 3
    lines = [json.loads(line) for line in cli("consume", topic, "--json").stdout.splitlines()]
    assert sorted(line["body"] for line in lines) == ["one", "three", "two"]


def test_made_up_messages_have_the_size_asked_for(cli: Cli, topic: str) -> None:
    summary = cli.json("send", topic, "--count", "500", "--size", "200")
    assert (summary["sent"], summary["failed"], summary["statuses"]) == (500, 0, {"SEND_OK": 500})
    lines = [json.loads(line) for line in cli("consume", topic, "--json", "--limit", "5").stdout.splitlines()]
    assert [line["size"] for line in lines] == [200] * 5


def test_consume_filters_and_starts_where_it_is_told(cli: Cli, topic: str) -> None:
    for tag in "ABA":
        cli("send", topic, f"body-{tag}", "--tag", tag, "--property", f"letter={tag}")
    assert cli("consume", topic, "--tags", "A").stdout.count("body-A") == 2
    assert cli("consume", topic, "--sql", "letter = 'B'").stdout.count("body-") == 1
    assert "no messages" in cli("consume", topic, "--from", "latest").stderr
    assert cli("consume", topic, "--from", "1h").stdout.count("body-") == 3


def test_a_group_keeps_its_place_shows_its_lag_and_is_reset(cli: Cli, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    cli("group", "create", group, "--retry-max", "3")
    assert next(row for row in cli.json("group", "list") if row["group"] == group)["retryMaxTimes"] == 3
    cli("send", topic, stdin="1\n2\n3\n4\n")
    assert len(cli("consume", topic, "--group", group, "--limit", "3").stdout.splitlines()) == 3
    assert sum(row["lag"] for row in cli.json("group", "lag", group)) == 1
    assert len(cli("consume", topic, "--group", group).stdout.splitlines()) == 1
    assert sum(row["lag"] for row in cli.json("group", "lag", group)) == 0
    assert {row["offset"] for row in cli.json("group", "reset", group, topic, "--to", "earliest")} == {0}
    assert len(cli("consume", topic, "--group", group).stdout.splitlines()) == 4
    assert "deleted" in cli("group", "delete", group, "-y").stderr


def test_follow_prints_what_comes_until_it_is_interrupted(cli: Cli, topic: str) -> None:
    command = [*PROGRAM, "consume", topic, "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cli.environment) as process:
        assert process.stdout is not None
        cli("send", topic, "first")
        assert json.loads(process.stdout.readline())["body"] == "first"
        cli("send", topic, "second")
        assert json.loads(process.stdout.readline())["body"] == "second"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topic", "status", "no-such-topic"), "no name server knows topic"),
        (("topic", "create", "a/b"), "characters other than"),
        (("topic", "create", "x", "--perm", "z"), "must be one of"),
        (("send", "t", "x", "--size", "5"), "BODY and --size each say what to send"),
        (("send", "t", "x", "--property", "novalue"), "name=value expected"),
        (("consume", "no-such-topic"), "no name server knows topic"),
        (("consume", "TBW102", "--sql", "a >"), "code"),
        (("group", "reset", "g", "t", "--to", "yesterday"), "milliseconds since 1970"),
        (("group", "delete", "no-such-group", "-y"), "not known to any broker"),
        (("message", "id", "zz"), "hex"),
        (("topic", "list", "-n", "nowhere"), "host:port expected"),
        (("topic", "list", "-n", "127.0.0.1:1"), "no name server answers"),
    ],
)
def test_errors_are_one_sentence_on_stderr(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    done = cli(*arguments, ok=False)
    assert done.stdout == ""
    assert re.search(words, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("noun", [("topic", "create"), ("group", "lag"), ("send",), ("consume",), ("message", "id")])
def test_help_shows_defaults_and_needs_no_servers(cli: Cli, noun: tuple[str, ...]) -> None:
    text = cli(*noun, "--help").stdout
    assert "Usage" in text
    assert "127.0.0.1:9876" in text
