"""`tandemq config`: every option of a daemon, the value in force and where it came from."""

import importlib
import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tandemq.cli.config_file import load
from tandemq.settings import settings_of

app = typer.Typer(help="Print the effective configuration with the source of every value.")


class Daemon(Enum):
    broker = "broker"
    namesrv = "namesrv"


CONFIG_CLASSES: dict[Daemon, list[tuple[str, str]]] = {
    Daemon.broker: [
        ("tandemq.broker.config", "BrokerConfig"),
        ("tandemq.store.config", "StoreConfig"),
        ("tandemq.replication.config", "ReplicationConfig"),
        ("tandemq.remoting.config", "RemotingConfig"),
    ],
    Daemon.namesrv: [
        ("tandemq.namesrv.config", "NamesrvConfig"),
        ("tandemq.remoting.config", "RemotingConfig"),
    ],
}


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    value: str
    unit: str
    source: str
    doc: str


def config_classes(daemon: Daemon) -> list[type]:
    return [getattr(importlib.import_module(module), name) for module, name in CONFIG_CLASSES[daemon]]


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _secret(key: str) -> bool:
    return any(word in key.lower() for word in ("secret", "sharedkey", "password"))


def rows(daemon: Daemon, path: Path | None, overrides: list[str], lenient: bool) -> tuple[list[Row], list[str]]:
    """Returns the options in the order of their declaration, each name once, and the loader's warnings."""
    classes = config_classes(daemon)
    loaded = load(path, classes, overrides=overrides, lenient=lenient)
    found: dict[str, Row] = {}
    for config_class in classes:
        for name, (_, described) in settings_of(config_class).items():
            value = _text(getattr(loaded[config_class], name))
            shown = "(set, not shown)" if value and _secret(described.key) else value
            source = loaded.sources.get(described.key, "default")
            found.setdefault(described.key, Row(described.key, shown, described.unit, source, described.doc))
    return list(found.values()), list(loaded.warnings)


@app.callback(invoke_without_command=True)
def config(
    path: Annotated[
        Path | None, typer.Option("--config", "-c", help="A broker.conf, namesrv.conf or .toml file.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, as the daemon would be given.")
    ] = None,
    daemon: Annotated[Daemon, typer.Option(help="Whose options.")] = Daemon.broker,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not a default.")] = False,
    lenient: Annotated[bool, typer.Option("--lenient", help="Pass over names that look mistyped.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the effective configuration with the source of every value. Fails where the daemon would not start."""
    found, warnings = rows(daemon, path, overrides or [], lenient)
    shown = [row for row in found if not changed or row.source != "default"]
    if as_json:
        print(json.dumps({row.key: {"value": row.value, "unit": row.unit, "source": row.source} for row in shown}))
        return
    table = Table("option", "value", "source", "meaning", box=None, pad_edge=False)
    for row in shown:
        value = f"{row.value} {row.unit}".strip()
        table.add_row(row.key, value, row.source, row.doc, style=None if row.source == "default" else "bold")
    console = Console()
    console.print(table)
    for warning in warnings:
        console.print(f"note: {warning}", style="yellow", markup=False)
