"""`tandemq`: one noun, one file. A command's module is imported only when it is used, so `--help` stays instant."""

import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tandemq import __version__
from tandemq.cli import failures
from tandemq.cli.examples import attach_examples, with_examples

# noun -> (module that has `app: typer.Typer`, one line of help), in the order of `tandemq --help`.
NOUNS: dict[str, tuple[str, str]] = {
    "up": ("tandemq.cli.up", "Start two name servers, a master and its slaves on this machine."),
    "down": ("tandemq.cli.down", "Stop what `tandemq up` started; the data stays."),
    "demo": ("tandemq.cli.demo", "See it in two minutes: kill the master, lose nothing, let Spark read the replica."),
    "console": ("tandemq.cli.console", "Serve the console: see a cluster in a browser and act on it."),
    "namesrv": ("tandemq.cli.namesrv", "Run a name server."),
    "broker": ("tandemq.cli.broker", "Run a broker; list, configure, promote or demote brokers."),
    "topic": ("tandemq.cli.topic", "List, create, delete and inspect topics."),
    "group": ("tandemq.cli.group", "Consumer groups: list, create, delete, clients, lag, reset offsets."),
    "dlq": ("tandemq.cli.dlq", "Dead letters of consumer groups: list them, send them again."),
    "send": ("tandemq.cli.send", "Send messages."),
    "consume": ("tandemq.cli.consume", "Print messages, those there are or also those that come."),
    "message": ("tandemq.cli.message", "Find messages by id, key or place."),
    "context": ("tandemq.cli.context", "Name clusters, with their name servers, TLS and credentials."),
    "config": ("tandemq.cli.config", "Print the effective configuration with the source of every value."),
    "doctor": ("tandemq.cli.doctor", "Check this machine: ports, disk, file limits, clock, Java, addresses."),
    "ha": ("tandemq.cli.ha", "Replication: who is master, who follows, who is in sync and why not."),
    "sim": ("tandemq.cli.sim", "Run the replication simulator: seeded faults, checked promises."),
    "bench": ("tandemq.cli.bench", "List and run the benchmarks (from a clone)."),
    "spark": ("tandemq.cli.spark", "Jobs on Spark: archive, replay, audit, reindex, stats."),
    "store": ("tandemq.cli.store", "Look at a store on disk: verify, dump, rebuild."),
}


class LazyGroup(TyperGroup):
    """A group that knows its members' names and help texts without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(NOUNS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in NOUNS:
            return None
        if cmd_name not in _words_typed():
            return _placeholder(cmd_name)  # only its line in the help of all nouns is wanted
        return load_noun(cmd_name)


def load_noun(noun: str) -> Any:
    """Returns the click command of a noun, with the examples of its help."""
    command = typer.main.get_command(importlib.import_module(NOUNS[noun][0]).app)
    command.name = noun
    attach_examples(command, f"tandemq {noun}")
    return command


def _words_typed() -> list[str]:
    """Returns the words of the command line: ours, or the one that a shell wants to complete."""
    completed = os.environ.get("COMP_WORDS", "") + " " + os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return [*sys.argv[1:], *completed.split()]


def _placeholder(noun: str) -> Any:
    app = typer.Typer()

    @app.command(help=NOUNS[noun][1])
    def stand_in() -> None: ...

    command = typer.main.get_command(app)
    command.name = noun
    return command


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # `failures` says what went wrong
    context_settings={"help_option_names": ["-h", "--help"]},
    help="TandemQ: RocketMQ in tandem.",
    epilog=with_examples(
        "tandemq",
        "Exit codes: 0 done, 1 an error, 2 wrong usage, 3 done but with fewer copies than wanted. "
        "`tandemq ha status` has codes of its own.",
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tandemq {__version__}")
        raise typer.Exit


@app.callback()
def tandemq(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    context: Annotated[
        str, typer.Option("--context", help="Use this context; see `tandemq context`.", metavar="NAME")
    ] = "",
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere on the line.")
    ] = False,
) -> None:
    """A message broker with master/slave high availability, and its data pipeline on Spark."""
    if context:
        from tandemq.cli import contexts

        contexts.asked_for = context
        contexts.named(context)


def main() -> None:
    """Runs the console script: whatever goes wrong becomes one sentence on stderr and an exit code."""
    debug = failures.wants_debug(sys.argv)
    try:
        code = app(standalone_mode=False)
    except BaseException as error:
        if debug:
            raise
        sys.exit(failures.report(error, as_json="--json" in sys.argv))
    sys.exit(code if isinstance(code, int) else 0)
