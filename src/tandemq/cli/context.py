"""`tandemq context`: named clusters, so that commands need no flags."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from tandemq.cli import contexts
from tandemq.cli.contexts import Context, Contexts
from tandemq.cli.render import Json, note, print_json, show, show_one
from tandemq.errors import ClientError, ConfigError

app = typer.Typer(help="Name clusters, with their name servers, TLS and credentials.", no_args_is_help=True)


def complete_name(incomplete: str) -> list[str]:
    try:
        return [name for name in sorted(contexts.load().by_name) if name.startswith(incomplete)]
    except ConfigError:
        return []


Name = Annotated[str, typer.Argument(help="Name of the context.", autocompletion=complete_name)]


def _secret_key() -> str:
    """Asks a person for it, unseen; takes the first line from a pipe."""
    if sys.stdin.isatty():
        return str(typer.prompt("Secret key", hide_input=True, err=True))
    found = sys.stdin.readline().strip()
    if not found:
        raise ClientError("an access key needs its secret key: give --secret-key, or the key on stdin")
    return found


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the context.")],
    namesrv: Annotated[str, typer.Option("--namesrv", "-n", help="Name servers, host:port separated by ;")],
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS.")] = False,
    tls_ca: Annotated[Path | None, typer.Option(help="PEM file of the authority that signed the servers.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of your certificate, if servers ask for one.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its private key.")] = None,
    access_key: Annotated[str, typer.Option(help="Access key of your account.")] = "",
    secret_key: Annotated[
        str, typer.Option(help="Its secret key; asked for, or read from stdin, if it is not given.")
    ] = "",
    use: Annotated[
        bool, typer.Option("--use/--no-use", help="Use it from now on. Default: the first one is used.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add a context, or replace it."""
    contexts.check_name(name)
    if access_key and not secret_key:
        secret_key = _secret_key()
    context = Context(
        namesrv=namesrv,
        tls=tls or any((tls_ca, tls_cert)),
        tls_ca=_file("--tls-ca", tls_ca),
        tls_cert=_file("--tls-cert", tls_cert),
        tls_key=_file("--tls-key", tls_key),
        access_key=access_key,
        secret_key=secret_key,
    )
    found = contexts.load()
    current = name if use or not found.by_name else found.current
    contexts.save(Contexts(current, {**found.by_name, name: context}))
    if as_json:
        print_json(_row(name, context, current))
    else:
        note(
            f"context {name} is saved{' and in use' if current == name else f'; `tandemq context use {name}` uses it'}"
        )


def _file(option: str, path: Path | None) -> str:
    if path is None:
        return ""
    if not path.is_file():
        raise ConfigError(f"{option} {path}: there is no such file")
    return str(path.absolute())


def _row(name: str, context: Context, current: str) -> dict[str, object]:
    return {
        "context": name,
        "current": name == current,
        "namesrv": context.namesrv,
        "tls": context.tls,
        "tlsCa": context.tls_ca,
        "tlsCert": context.tls_cert,
        "accessKey": context.access_key,
    }


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the contexts; the one in use is marked."""
    current = contexts.chosen_name()
    rows = [_row(name, context, current) for name, context in sorted(contexts.load().by_name.items())]
    headings = {
        "context": "CONTEXT",
        "current": "IN USE",
        "namesrv": "NAME SERVERS",
        "tls": "TLS",
        "accessKey": "ACCOUNT",
    }
    show(rows, headings, as_json=as_json, empty="no contexts yet; `tandemq context add NAME -n host:port` makes one")


@app.command("show")
def show_(
    name: Annotated[str | None, typer.Argument(help="Default: the one in use.", autocompletion=complete_name)] = None,
    as_json: Json = False,
) -> None:
    """Show one context; secrets are not printed."""
    chosen = name or contexts.chosen_name()
    if not chosen:
        raise ConfigError("no context is in use; `tandemq context list` shows those there are")
    show_one(_row(chosen, contexts.named(chosen), contexts.chosen_name()), as_json=as_json)


@app.command()
def use(
    name: Annotated[str, typer.Argument(help="Name of the context; - for none.", autocompletion=complete_name)],
    as_json: Json = False,
) -> None:
    """Use a context from now on, or none of them (-)."""
    found = contexts.load()
    if name != "-":
        contexts.named(name)
    contexts.save(dataclasses.replace(found, current="" if name == "-" else name))
    if as_json:
        print_json({"current": "" if name == "-" else name})
    else:
        note("no context is used" if name == "-" else f"context {name} is used from now on")


@app.command()
def remove(name: Name, as_json: Json = False) -> None:
    """Remove a context."""
    contexts.named(name)
    found = contexts.load()
    left = {other: context for other, context in found.by_name.items() if other != name}
    contexts.save(Contexts("" if found.current == name else found.current, left))
    if as_json:
        print_json({"removed": name})
    else:
        note(f"context {name} is removed")
