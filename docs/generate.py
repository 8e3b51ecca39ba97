"""Writes docs/configuration.md and docs/cli.md from the code: `python docs/generate.py`, or `--check` in the tests.

An option or command is described where it is declared; these pages only lay that out.
"""

import importlib
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from tandemq.cli.main import NOUNS
from tandemq.settings import Setting, settings_of

DOCS = Path(__file__).resolve().parent

CONFIGS = [
    ("Broker", "tandemq.broker.config", "BrokerConfig", "broker.conf"),
    ("Store", "tandemq.store.config", "StoreConfig", "broker.conf"),
    ("Replication", "tandemq.replication.config", "ReplicationConfig", "broker.conf"),
    ("Remoting", "tandemq.remoting.config", "RemotingConfig", "broker.conf and namesrv.conf"),
    ("Name server", "tandemq.namesrv.config", "NamesrvConfig", "namesrv.conf"),
    ("Python client", "tandemq.client.config", "ClientConfig", "arguments of `tandemq.client.ClientConfig`"),
]

CONFIGURATION_HEAD = """# Configuration

Generated from the code by `docs/generate.py`; a test fails when this page and the code disagree.

Options carry RocketMQ's own property names wherever RocketMQ has the option, so an existing `broker.conf` or
`namesrv.conf` works as it is. TOML files (`.toml`) take the same names. `--set key=value` on the command line overrides
a file; `tandemq config` prints what is in force and where each value came from. An unknown name is reported with the
nearest known one. *Tunable* options can be changed at run time (`mqadmin updateBrokerConfig`); nothing else can.
"""

CLI_HEAD = """# Command line

Generated from the code by `docs/generate.py`; a test fails when this page and the code disagree.

`./run WHAT …` from a clone and `tandemq WHAT …` from an installed package are the same. `--json` prints one JSON value
(one object a line where there are many); errors go to stderr, one sentence that says what to do next, and exit code 1.
"""


def value_text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def range_text(described: Setting) -> str:
    low, high = described.minimum, described.maximum
    if low is None and high is None:
        return ""
    return f"{'' if low is None else f'{low:g}'}…{'' if high is None else f'{high:g}'}"


def configuration_page() -> str:
    parts = [CONFIGURATION_HEAD]
    for title, module, name, where in CONFIGS:
        config_class = getattr(importlib.import_module(module), name)
        rows = [f"\n## {title} ({where})\n", "| option | default | unit | range | meaning |", "|---|---|---|---|---|"]
        for field, described in settings_of(config_class).values():
            default = value_text(field.default) or "(empty)"
            names = f"`{described.key}`" + "".join(f"<br>also `{alias}`" for alias in described.aliases)
            if name == "ClientConfig":
                names = f"`{field.name}`<br>({names})"  # programs write the argument, broker.conf readers know the key
            meaning = described.doc.replace("|", "\\|").replace("\n", " ") + (
                " *Tunable.*" if described.tunable else ""
            )
            rows.append(f"| {names} | `{default}` | {described.unit} | {range_text(described)} | {meaning} |")
        parts.append("\n".join(rows) + "\n")
    return "".join(parts)


def command_section(path: str, command: Any, depth: int) -> list[str]:
    lines = [f"\n{'#' * depth} `{path}`\n", (command.help or "").strip() + "\n"]
    rows = []
    for parameter in command.params:
        if parameter.name in {"install_completion", "show_completion", "help"}:
            continue
        declared = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
        if parameter.param_type_name == "argument":
            declared = f"`{(parameter.metavar or parameter.name).upper()}`"
        default = parameter.default
        shown = "" if default is None or default in (False, ()) or callable(default) else f"`{value_text(default)}`"
        meaning = (getattr(parameter, "help", "") or "").replace("|", "\\|")
        rows.append(f"| {declared} | {'required' if parameter.required else shown} | {meaning} |")
    if rows:
        lines += ["| | default | |", "|---|---|---|", *rows, ""]
    for name, member in sorted(getattr(command, "commands", {}).items()):
        lines += command_section(f"{path} {name}", member, depth + 1)
    return lines


def cli_page() -> str:
    lines = [CLI_HEAD]
    for noun, (module, _) in NOUNS.items():
        command = typer.main.get_command(importlib.import_module(module).app)
        lines += command_section(f"tandemq {noun}", command, 2)
    return "\n".join(lines).rstrip() + "\n"


PAGES = {"configuration.md": configuration_page, "cli.md": cli_page}


def main() -> int:
    stale = []
    for name, render in PAGES.items():
        path = DOCS / name
        text = render()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run docs/generate.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
