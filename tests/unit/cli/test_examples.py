"""Examples stand below the help of every command."""

from tandemq.cli.examples import EXAMPLES, attach_examples


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
