"""`tandemq`: one noun, one file. A command's module is imported only when it is used, so `--help` stays instant."""

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tandemq import __version__
from tandemq.errors import TandemError

# noun -> (module that has `app: typer.Typer`, one line of help), in the order of `tandemq --help`.
NOUNS: dict[str, tuple[str, str]] = {
    "up": ("tandemq.cli.up", "Start two name servers, a master and its slaves on this machine."),
    "down": ("tandemq.cli.down", "Stop what `tandemq up` started; the data stays."),
    "demo": (
        "tandemq.cli.demo",
        "The story in two minutes: kill the master, lose nothing, let Spark read the replica.",
    ),
    "namesrv": ("tandemq.cli.namesrv", "Run a name server."),
    "broker": ("tandemq.cli.broker", "Run a broker; promote or demote one."),
    "topic": ("tandemq.cli.topic", "List, create, delete and inspect topics."),
    "group": ("tandemq.cli.group", "Consumer groups: list, create, delete, lag, reset offsets."),
    "send": ("tandemq.cli.send", "Send messages."),
    "consume": ("tandemq.cli.consume", "Print messages, up to now or as they come."),
    "message": ("tandemq.cli.message", "Find messages by id, key or place."),
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
        module, help_text = NOUNS[cmd_name]
        only_its_line_in_help = cmd_name not in sys.argv
        app = _placeholder(help_text) if only_its_line_in_help else importlib.import_module(module).app
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command


def _placeholder(help_text: str) -> typer.Typer:
    app = typer.Typer()

    @app.command(help=help_text)
    def stand_in() -> None: ...

    return app


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # a bug of ours in a daemon's log is read with grep
    help="TandemQ: RocketMQ in tandem.",
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
) -> None:
    """A message broker with master/slave high availability, and its data pipeline on Spark."""


def main() -> None:
    """The console script: our own errors become one sentence on stderr and exit 1."""
    try:
        app()
    except TandemError as error:
        print(f"tandemq: {error}", file=sys.stderr)
        sys.exit(1)
