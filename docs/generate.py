"""Writes configuration.md, cli.md and requests.md from the code: `python docs/generate.py`, or `--check` in the tests.

An option, a command or a request is described where it is declared; these pages only lay that out.
"""

import ast
import importlib
import re
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from tandemq.cli.examples import EXAMPLES
from tandemq.cli.main import NOUNS
from tandemq.codec.codes import RequestCode
from tandemq.replication.metadata import PairCode
from tandemq.settings import Setting, plain_number, settings_of

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS.parent / "src" / "tandemq"

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
a file; `tandemq config` prints what is in force and where each value came from. A name that looks like a mistyped
option stops the start (`--lenient` goes on); an option of RocketMQ's that has no use here is only noted. *Tunable*
options can be changed at run time (`tandemq broker config ADDRESS --set key=value`, `mqadmin updateBrokerConfig`);
nothing else can.
"""

CLI_HEAD = """# Command line

Generated from the code by `docs/generate.py`; a test fails when this page and the code disagree.

`./run WHAT …` from a clone and `tandemq WHAT …` from an installed package are the same.

| exit code | means |
|---|---|
| 0 | done |
| 1 | an error: one sentence on stderr that says what to do next |
| 2 | wrong usage: an option, an argument or a command that is not there |
| 3 | done, but with less than was asked for: a send that is stored with fewer copies than wanted |
| 130 | Ctrl-C |

`--json` prints one JSON value (one object a line where there are many); an error is then
`{"error": {"kind": …, "message": …}}` on stderr. `--debug`, anywhere on the line, shows the traceback of an error.
Colours are for terminals only. `tandemq --install-completion` lets your shell complete commands, options, topics,
groups and brokers.

The name servers come from the first of these that says something: `--namesrv` (`-n`), the environment variable
`NAMESRV_ADDR`, the context (`tandemq --context NAME …`, `TANDEMQ_CONTEXT`, or `tandemq context use`), a cluster that
`tandemq up` runs on this machine, `127.0.0.1:9876`.

| variable | means |
|---|---|
| `NAMESRV_ADDR` | name servers, `host:port` separated by `;` |
| `TANDEMQ_CONTEXT` | the context to use |
| `TANDEMQ_ACCESS_KEY`, `TANDEMQ_SECRET_KEY` | the account that signs requests |
| `TANDEMQ_TLS` | `true`: speak TLS |
| `TANDEMQ_TLS_CA` | PEM file of the authority that signed the servers' certificates |
| `TANDEMQ_TLS_CERT`, `TANDEMQ_TLS_KEY` | PEM files of your own certificate and key, where servers ask for one |
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
    return f"{'' if low is None else plain_number(low)}…{'' if high is None else plain_number(high)}"


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
    if examples := EXAMPLES.get(path):
        lines += ["```sh", *examples, "```", ""]
    for name, member in sorted(getattr(command, "commands", {}).items()):
        lines += command_section(f"{path} {name}", member, depth + 1)
    return lines


def cli_page() -> str:
    lines = [CLI_HEAD]
    for noun, (module, _) in NOUNS.items():
        command = typer.main.get_command(importlib.import_module(module).app)
        lines += command_section(f"tandemq {noun}", command, 2)
    return "\n".join(lines).rstrip() + "\n"


REQUESTS_HEAD = """# Requests

Generated from the code by `docs/generate.py`; a test fails when this page and the code disagree.

Every request code that our servers answer, with RocketMQ's names and numbers, and the file that answers it. *From* and
*to*: c client, b broker, ns name server, adm admin tool, s slave. Any other code is answered
`REQUEST_CODE_NOT_SUPPORTED` (3), as RocketMQ answers codes it does not know; the last table says why.
"""

NOT_SUPPORTED = [
    (
        "200050–200056, 200151",
        "POP_MESSAGE, ACK_MESSAGE, …",
        "POP consumption: used by the 5.x proxy and POP clients only",
    ),
    ("400, 401", "QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE", "belong to POP; the Java client rebalances itself"),
    ("370", "RECALL_MESSAGE", "a message for an exact time can't be taken back here"),
    ("513", "UPDATE_AND_CREATE_STATIC_TOPIC", "static topics (logical queues) are not implemented"),
    ("902, 903", "ADD_BROKER, REMOVE_BROKER", "broker container: run one process per broker"),
    ("1001–1013", "controller requests", "no controller: promotion is an operator's act, `tandemq broker promote`"),
    ("2001–2004", "cold data flow control", "reads of cold data never block the loop here"),
    ("13, 22, 23, 27, 47, 209–214", "old names without a handler", "RocketMQ itself does not answer them any more"),
]


def handled_requests() -> dict[str, str]:
    """Name of a request code -> the file whose `handlers()` answers it, read off the source."""
    found = {}
    for path in sorted((*SOURCE.glob("broker/**/*.py"), *SOURCE.glob("namesrv/*.py"))):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name.endswith("handlers"):
                keys = (key for table in ast.walk(function) if isinstance(table, ast.Dict) for key in table.keys)
                found |= {
                    key.attr: path.relative_to(SOURCE).as_posix() for key in keys if isinstance(key, ast.Attribute)
                }
    return found


def requests_page() -> str:
    directions = dict(re.findall(r"^    (\w+) = \d+  # (\S+→\S+)", (SOURCE / "codec" / "codes.py").read_text(), re.M))
    files = handled_requests()
    rows = {"broker": [], "name server": [], "client": []}
    for member in RequestCode:
        way = directions[member.name]
        row = f"| {member.value} | `{member.name}` | {way} |"
        if member.name in files:
            rows["name server" if files[member.name].startswith("namesrv") else "broker"].append(
                f"{row} `{files[member.name]}` |"
            )
        elif way == "b→c":
            rows["client"].append(f"{row} |")
    head = "| code | name | from → to | answered by |\n|---|---|---|---|\n"
    own = [f"| {member.value} | `{member.name}` | `{files[member.name]}` |" for member in PairCode]
    refused = [f"| {codes} | {names} | {why} |" for codes, names, why in NOT_SUPPORTED]
    return "\n".join(
        [
            REQUESTS_HEAD,
            f"## Answered by a broker ({len(rows['broker'])})\n",
            head + "\n".join(rows["broker"]) + "\n",
            f"## Answered by a name server ({len(rows['name server'])})\n",
            head + "\n".join(rows["name server"]) + "\n",
            "## Sent by a broker to clients\n",
            head.replace("answered by", "") + "\n".join(rows["client"]) + "\n",
            "`GET_CONSUMER_RUNNING_INFO` and `CONSUME_MESSAGE_DIRECTLY` are passed on to the client they name.\n",
            "## Our own, between TandemQ nodes and tools\n",
            "In a range RocketMQ does not use; a RocketMQ broker says so, and we do it its way.\n",
            "| code | name | answered by |\n|---|---|---|\n" + "\n".join(own) + "\n",
            "## Not supported, and why\n",
            "| codes | what | why |\n|---|---|---|\n" + "\n".join(refused) + "\n",
        ]
    )


PAGES = {"configuration.md": configuration_page, "cli.md": cli_page, "requests.md": requests_page}


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
