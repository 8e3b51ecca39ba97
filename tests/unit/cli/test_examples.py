"""Examples stand below the help of every command."""

from collections.abc import Iterator
from typing import Any

import pytest

from tandemq.cli.examples import EXAMPLES, attach_examples
from tandemq.cli.main import NOUNS, app, load_noun

SERVERS = {"tandemq broker", "tandemq namesrv", "tandemq console"}
PROGRAMS_OF_CONTRIBUTORS = {"tandemq bench"}


class FakeCommand:
    def __init__(self, **commands: "FakeCommand") -> None:
        self.epilog = ""
        self.commands = commands


def test_examples_reach_sub_commands_and_brackets_are_kept() -> None:
    leaf = FakeCommand()
    attach_examples(FakeCommand(create=leaf), "tandemq topic")
    assert all(line in leaf.epilog for line in EXAMPLES["tandemq topic create"])


def test_a_command_without_examples_stays_as_it_is() -> None:
    command = FakeCommand()
    attach_examples(command, "tandemq nothing")
    assert command.epilog == ""


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, member in getattr(command, "commands", {}).items():
        yield from commands(member, f"{path} {name}")


@pytest.mark.parametrize("noun", sorted(NOUNS))
def test_every_command_has_examples_and_speaks_json(noun: str) -> None:
    for path, command in commands(load_noun(noun), f"tandemq {noun}"):
        if path == "tandemq bench":
            continue  # hands `--help` on to the program that it starts
        assert "Examples" in (command.epilog or ""), path
        options = {word for parameter in command.params for word in parameter.opts}
        if not getattr(command, "commands", {}) and path not in SERVERS | PROGRAMS_OF_CONTRIBUTORS:
            assert "--json" in options, path


def test_the_help_of_all_has_examples_too() -> None:
    assert all(line in str(app.info.epilog) for line in EXAMPLES["tandemq"])
